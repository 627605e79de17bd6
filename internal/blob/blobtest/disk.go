// Package blobtest gives tests a disk that fails: at any operation, in the
// middle of a write, and by losing power.
package blobtest

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"paddock/internal/blob"
)

var _ blob.Files = (*Disk)(nil)

// ErrCut is what every operation gives that comes after a loss of power.
var ErrCut = errors.New("blobtest: the power is cut")

// Op is one operation on a [Disk].
type Op struct {
	N    int    // counted from 1
	Kind string // "create", "open", "append", "rename", "remove", "mkdir", "readdir", "stat", "syncdir", and of a file "read", "write", "sync"
	Name string // of the file or folder
}

// Torn is an error that comes after half of the operation was done: of a write
// half of the bytes are in the file. Others are done as a whole.
type Torn struct{ Err error }

func (t Torn) Error() string { return t.Err.Error() }

// Unwrap gives what the operation says.
func (t Torn) Unwrap() error { return t.Err }

// At makes the operation n give err.
func At(n int, err error) func(Op) error {
	return func(op Op) error {
		if op.N == n {
			return err
		}
		return nil
	}
}

// From makes every operation from n on give err, as if a process had died there.
func From(n int, err error) func(Op) error {
	return func(op Op) error {
		if op.N >= n {
			return err
		}
		return nil
	}
}

// FullFrom makes a disk that has no room from the operation n on: what needs
// some tears.
func FullFrom(n int) func(Op) error {
	return func(op Op) error {
		if op.N >= n && slices.Contains([]string{"create", "append", "mkdir"}, op.Kind) {
			return syscall.ENOSPC
		}
		if op.N >= n && op.Kind == "write" {
			return Torn{syscall.ENOSPC}
		}
		return nil
	}
}

// Disk is a [blob.Files] over a real folder, in which everything can be seen
// by other means too. It remembers what was synced: [Disk.Cut] loses the rest.
// Nothing is really synced, so it is fast. Contents are held in memory twice.
// It is safe for concurrent use.
type Disk struct {
	dir string

	mu    sync.Mutex
	root  *node
	ops   int
	fault func(Op) error
	life  int // how often power was cut
}

// node is a file or a folder: what is there now, and what survives.
type node struct {
	folder bool

	names, safeNames map[string]*node // of a folder

	content, safe []byte // of a file; content is what was written
}

func newFolder() *node {
	return &node{folder: true, names: map[string]*node{}, safeNames: map[string]*node{}}
}

// New makes a disk of a folder. What is in it has been synced.
func New(dir string) (*Disk, error) {
	d := &Disk{dir: filepath.Clean(dir)}
	var err error
	d.root, err = load(d.dir)
	return d, err
}

func load(dir string) (*node, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	n := newFolder()
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		child := &node{}
		if e.IsDir() {
			child, err = load(p)
		} else if child.content, err = os.ReadFile(p); err == nil {
			child.safe = child.content
		}
		if err != nil {
			return nil, err
		}
		n.names[e.Name()], n.safeNames[e.Name()] = child, child
	}
	return n, nil
}

// SetFault says what operations give; nil: they work. It is called with the
// disk locked.
func (d *Disk) SetFault(fault func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// Ops is how many operations there were.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Cut loses power and comes back without faults. Of each name and content that
// was not synced there is afterwards the old one, the new one, or of a content
// any mixture; r decides. Files that are open give ErrCut from then on.
func (d *Disk) Cut(r *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	bootsOf(d.dir).Add(1)
	d.fault = nil
	d.root = survive(d.root, r)
	entries, err := os.ReadDir(d.dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.dir, e.Name())))
	}
	if err != nil {
		return err
	}
	return store(d.dir, d.root)
}

// survive gives what is left of a node, as a node that is synced.
func survive(n *node, r *rand.Rand) *node {
	if !n.folder {
		content := slices.Clip(mix(n.safe, n.content, r))
		return &node{content: content, safe: content}
	}
	left := newFolder()
	all := maps.Clone(n.names)
	maps.Copy(all, n.safeNames)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		kept := n.safeNames[name]
		if now := n.names[name]; now != kept && r.IntN(2) == 0 {
			kept = now
		}
		if kept != nil {
			s := survive(kept, r)
			left.names[name], left.safeNames[name] = s, s
		}
	}
	return left
}

// mix gives what a disk may hold of a content of which only safe was synced. Where both
// say the same, so does it.
func mix(safe, now []byte, r *rand.Rand) []byte {
	if string(safe) == string(now) {
		return now
	}
	switch r.IntN(4) {
	case 0:
		return safe
	case 1:
		return now
	}
	short, long := min(len(safe), len(now)), max(len(safe), len(now))
	mixed := make([]byte, short+r.IntN(long-short+1))
	for k := 0; k < len(mixed); k += sector {
		part := mixed[k:min(k+sector, len(mixed))]
		old, fresh := slices.Clone(part), part
		copy(old, safe[min(k, len(safe)):])
		copy(fresh, now[min(k, len(now)):])
		if string(old) == string(fresh) {
			continue
		}
		switch r.IntN(3) {
		case 0:
			clear(part)
		case 1:
			copy(part, old)
		}
	}
	return mixed
}

// sector is what a disk writes as one piece. It is smaller here than in truth.
const sector = 32

// store writes what is below a node into an empty folder.
func store(dir string, n *node) error {
	for name, child := range n.names {
		p := filepath.Join(dir, name)
		err := error(nil)
		if child.folder {
			if err = os.Mkdir(p, 0o700); err == nil {
				err = store(p, child)
			}
		} else {
			err = os.WriteFile(p, child.content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginLocked counts an operation and gives its fault; torn tells that it is
// nevertheless to be done, or half of it.
func (d *Disk) beginLocked(kind, name string) (torn bool, err error) {
	d.ops++
	if d.fault == nil {
		return true, nil
	}
	err = d.fault(Op{N: d.ops, Kind: kind, Name: name})
	var t Torn
	return err == nil || errors.As(err, &t), err
}

// do is one operation that is done as a whole or not at all.
func (d *Disk) do(kind, name string, act func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	done, fault := d.beginLocked(kind, name)
	if done {
		if err := act(); err != nil {
			return err
		}
	}
	if fault != nil {
		return &fs.PathError{Op: kind, Path: name, Err: fault}
	}
	return nil
}

// atLocked gives the folder that name is in, and its name there. A folder that
// others made behind the disk's back has been synced; one outside of the disk
// is a stand-in.
func (d *Disk) atLocked(name string) (*node, string) {
	rel, err := filepath.Rel(d.dir, name)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return newFolder(), ""
	}
	parts := strings.Split(rel, string(filepath.Separator))
	n := d.root
	for _, part := range parts[:len(parts)-1] {
		child := n.names[part]
		if child == nil || !child.folder {
			child = newFolder()
			n.names[part], n.safeNames[part] = child, child
		}
		n = child
	}
	return n, parts[len(parts)-1]
}

// nodeLocked gives what is called name.
func (d *Disk) nodeLocked(name string, folder bool) *node {
	if filepath.Clean(name) == d.dir {
		return d.root
	}
	at, base := d.atLocked(name)
	n := at.names[base]
	if n == nil || n.folder != folder {
		n = &node{}
		if folder {
			n = newFolder()
		}
		at.names[base] = n
	}
	return n
}

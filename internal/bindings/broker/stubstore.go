package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/bindings/stub"
	"paddock/internal/fault"
)

const (
	// maxTree bounds the files that are made of one server's tools, in bytes: five
	// thousand ordinary tools have a third of it.
	maxTree = 64 << 20
	// maxTrees and maxForest bound the trees that are kept, and treeAge is how long one
	// is kept that no session was given. Sessions keep what they have.
	maxTrees  = 1024
	maxForest = 1 << 30
	treeAge   = 7 * 24 * time.Hour
	// looksAfter is after how many new trees the old ones are looked through.
	looksAfter = 32
)

// stamp is the file that names what a folder was made of, and in the lines behind that
// its files with their sizes. It is written last.
const stamp = ".made-of"

// stubStore has the files of servers' tools, made once for each owner and shared by all of
// its sessions: a folder for each view, which is never changed. Sessions have links to
// the files, or copies where the system has no links. They are never between owners: a
// worker that was taken over may write into its owner's folders, and would then write
// what programs of others import.
type stubStore struct {
	dir  string // empty: a temporary folder, from the first need to close
	link func(from, to string) error

	mu      sync.Mutex // guards what follows
	built   map[string]*stubTree
	made    int
	swept   bool
	temp    bool
	closing bool
}

// stubTree is a folder, in this process.
type stubTree struct {
	mu      sync.Mutex // held while it is made or looked at
	files   []string   // nil: not yet
	refused error      // it cannot be made, and is not tried again
}

// close removes what was temporary.
func (s *stubStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if !s.temp {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// treeName gives the name of an owner's tree of a view.
func treeName(owner string, v *view) string { return nameOf(owner, v.named()) }

// treeFor gives a tree's entry and folder.
func (s *stubStore) treeFor(name string) (*stubTree, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, "", errClosing
	}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "paddock-servers-")
		if err != nil {
			return nil, "", err
		}
		s.dir, s.temp = dir, true
	}
	t := s.built[name]
	if t == nil {
		if len(s.built) > 4*maxTrees {
			clear(s.built)
		}
		t = &stubTree{}
		s.built[name] = t
	}
	return t, filepath.Join(s.dir, name), nil
}

// linkInto makes a view's files appear as the folder to of an owner's, which must not be
// there.
func (s *stubStore) linkInto(ctx context.Context, owner string, v *view, to string) error {
	for again := true; ; again = false {
		files, from, err := s.build(ctx, owner, v)
		if err != nil {
			return err
		}
		if err = s.linkAll(from, to, files); err == nil {
			touch(from)
			return nil
		}
		_ = os.RemoveAll(to)
		if !again || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.mu.Lock()
		delete(s.built, treeName(owner, v)) // somebody removed it meanwhile
		s.mu.Unlock()
	}
}

// build makes an owner's tree of a view where there is none, and gives its files and its folder.
func (s *stubStore) build(ctx context.Context, owner string, v *view) ([]string, string, error) {
	t, dir, err := s.treeFor(treeName(owner, v))
	if err != nil {
		return nil, "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files != nil || t.refused != nil {
		return t.files, dir, t.refused
	}
	if files, err := verifyTree(dir, v.named()); err == nil {
		t.files = files
		return files, dir, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	if err := s.write(ctx, owner, v, dir); err != nil {
		if errors.Is(err, errTooLarge) {
			t.refused = err
		}
		return nil, "", err
	}
	if t.files, err = verifyTree(dir, v.named()); err != nil {
		return nil, "", err
	}
	s.sweep()
	return t.files, dir, nil
}

// write makes a tree: in a folder of its own, which gets its name when it is whole.
func (s *stubStore) write(ctx context.Context, owner string, v *view, dir string) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	own := map[string]bool{}
	sizes := map[string]int64{}
	total := 0
	for _, file := range v.files() {
		if total += len(file.Data); total > maxTree {
			return errTooLarge
		}
		if err := put(fresh, file); err != nil {
			return err
		}
		own[file.Path], sizes[file.Path] = true, int64(len(file.Data))
	}
	if v.base != nil {
		files, from, err := s.build(ctx, owner, v.base)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(files), func(path string) bool { return own[path] || path == stamp })
		if err := s.linkAll(from, fresh, rest); err != nil {
			return err
		}
		for _, path := range rest {
			info, err := os.Lstat(filepath.Join(fresh, filepath.FromSlash(path)))
			if err != nil {
				return err
			}
			sizes[path] = info.Size()
		}
	}
	if err := put(fresh, stub.File{Path: stamp, Data: manifest(v.named(), sizes)}); err != nil {
		return err
	}
	_ = os.RemoveAll(dir) // what was there is not whole, or somebody else is as fast
	if err := os.Rename(fresh, dir); err != nil {
		if _, err := verifyTree(dir, v.named()); err == nil {
			return nil
		}
		return err
	}
	return nil
}

// put writes a file that everybody may read, whatever the process's umask.
func put(dir string, file stub.File) error {
	path := filepath.Join(dir, filepath.FromSlash(file.Path))
	if err := folders(dir, file.Path); err != nil {
		return err
	}
	if err := os.WriteFile(path, file.Data, 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

// folders makes those in which a file of a tree lies.
func folders(dir, path string) error {
	at := dir
	parts := strings.Split(path, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func manifest(digest string, sizes map[string]int64) []byte {
	var b bytes.Buffer
	b.WriteString(digest + "\n")
	paths := []string{}
	for path := range sizes {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(&b, "%d %s\n", sizes[path], path)
	}
	return b.Bytes()
}

var errTooLarge = fault.New(fault.Exhausted, "the files of the server's tools would be larger than %d MiB", maxTree>>20)

var errNotWhole = errors.New("broker: the files of a server are not all there")

// verifyTree gives the files of a tree, if it is whole: a host that lost its power may have
// kept their names alone.
func verifyTree(dir, digest string) ([]string, error) {
	text, err := readBounded(filepath.Join(dir, stamp), maxTree)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	if !lines.Scan() || lines.Text() != digest {
		return nil, errNotWhole
	}
	files := []string{stamp}
	for lines.Scan() {
		number, path, _ := strings.Cut(lines.Text(), " ")
		size, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !filepath.IsLocal(filepath.FromSlash(path)) {
			return nil, errNotWhole
		}
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil || !info.Mode().IsRegular() || info.Size() != size {
			return nil, errNotWhole
		}
		files = append(files, path)
	}
	return files, lines.Err()
}

// madeOf gives what a folder was made of; empty: nobody knows.
func madeOf(dir string) string {
	f, err := os.Open(filepath.Join(dir, stamp))
	if err != nil {
		return ""
	}
	defer f.Close()
	digest := make([]byte, 64)
	n, _ := f.Read(digest)
	return string(digest[:n])
}

// linkAll makes the files of one folder appear in another, which is made if it is not
// there.
func (s *stubStore) linkAll(from, to string, files []string) error {
	if err := os.Mkdir(to, 0o755); err == nil {
		if err := os.Chmod(to, 0o755); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	links := true
	for _, path := range files {
		if err := folders(to, path); err != nil {
			return err
		}
		old, fresh := filepath.Join(from, filepath.FromSlash(path)), filepath.Join(to, filepath.FromSlash(path))
		if links {
			err := s.link(old, fresh)
			if err == nil {
				continue
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				return err
			}
			links = false // other disks, too many links, or a system without them
		}
		data, err := os.ReadFile(old)
		if err != nil {
			return err
		}
		if err := put(to, stub.File{Path: path, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

// touch notes that a tree is used, an hour precisely.
func touch(dir string) {
	now := time.Now()
	if info, err := os.Stat(dir); err == nil && now.Sub(info.ModTime()) > time.Hour {
		_ = os.Chtimes(dir, now, now) // else it is made again some day
	}
}

// sweep removes trees that nobody was given for long, those beyond what may be kept, and
// what was left half-made. What cannot be removed is tried again another time.
func (s *stubStore) sweep() {
	s.mu.Lock()
	s.made++
	if s.swept && s.made%looksAfter != 0 {
		s.mu.Unlock()
		return
	}
	s.swept = true
	dir := s.dir
	s.mu.Unlock()
	for _, path := range unusedTrees(dir, time.Now()) {
		gone := filepath.Join(dir, fmt.Sprintf(".old-%d-%s", time.Now().UnixNano(), filepath.Base(path)))
		if err := os.Rename(path, gone); err == nil {
			_ = os.RemoveAll(gone)
		}
	}
}

// unusedTrees gives what can be removed from a folder of trees.
func unusedTrees(dir string, now time.Time) []string {
	entries, _ := os.ReadDir(dir)
	type known struct {
		path string
		at   time.Time
		size int64
	}
	var trees []known
	var gone []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		path, age := filepath.Join(dir, e.Name()), now.Sub(info.ModTime())
		switch {
		case strings.HasPrefix(e.Name(), "."):
			if age > time.Hour {
				gone = append(gone, path)
			}
		case age > treeAge:
			gone = append(gone, path)
		default:
			trees = append(trees, known{path, info.ModTime(), sizeOf(path)})
		}
	}
	slices.SortFunc(trees, func(a, b known) int { return b.at.Compare(a.at) }) // the youngest first
	var size int64
	for i, t := range trees {
		if size += t.size; i >= maxTrees || size > maxForest {
			gone = append(gone, t.path)
		}
	}
	return gone
}

// sizeOf gives the size of a tree by its stamp.
func sizeOf(dir string) (size int64) {
	text, _ := readBounded(filepath.Join(dir, stamp), maxTree)
	for line := range strings.Lines(string(text)) {
		number, _, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		size += n
	}
	return size
}

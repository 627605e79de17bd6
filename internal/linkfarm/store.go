package linkfarm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
)

const (
	// maxTree bounds the files of one tree, in bytes: those of five thousand ordinary tools
	// of a server have a third of it.
	maxTree = 64 << 20
	// maxTrees and maxBytes bound the trees that are kept, and maxAge is how long one is
	// kept that no session was given. Sessions keep what they have.
	maxTrees = 1024
	maxBytes = 1 << 30
	maxAge   = 7 * 24 * time.Hour
	// sweepEvery is after how many new trees the old ones are looked through.
	sweepEvery = 32
)

var (
	errClosed   = fault.New(fault.Unavailable, "paddock is being stopped").WithHint("try again when it runs")
	errTooLarge = fault.New(fault.Exhausted, "the files would be larger than %d MiB together", maxTree>>20)
	errNotWhole = errors.New("linkfarm: the files of a tree are not all there")
)

// Tree is what a store makes a folder of.
type Tree struct {
	// Owner is whose it is: no other owner gets links to its files.
	Owner string
	// Digest names what the files are: the same Digest stands for the same files. It is the
	// first line of the tree's [Stamp].
	Digest string
	// Base is a tree of the same owner whose files are in this one as well, but for those
	// that Files gives; nil: there is none.
	Base *Tree
	// Files makes the files. It is called when the owner has no such tree.
	Files func() []File
}

// name is what a tree's folder is called.
func (t *Tree) name() string {
	h := sha256.New()
	for _, part := range []string{t.Owner, t.Digest} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Store keeps trees: a folder for each, which is never changed, and is whole or not there.
// Several processes may share its folder. It syncs nothing: a tree that a power cut has
// damaged is noticed and made again. It is for any number of goroutines.
//
// A tree's lock is taken before that of its base, and before the store's.
type Store struct {
	link func(old, name string) error

	mu     sync.Mutex // guards what follows
	dir    string     // empty: a temporary folder, from the first need to Close
	trees  map[string]*state
	made   int
	swept  bool
	temp   bool
	closed bool
}

// state is what this process knows of a tree.
type state struct {
	mu      sync.Mutex // held while the tree is made or verified
	files   []string   // nil: not known yet
	refused error      // it cannot be made, and is not tried again
}

// NewStore makes a store in a folder, which is made when it is needed. With an empty dir
// the trees are in a temporary folder, which Close removes. link is [os.Link], or stands
// for it.
func NewStore(dir string, link func(old, name string) error) *Store {
	return &Store{dir: dir, link: link, trees: map[string]*state{}}
}

// Close removes what was temporary. No tree is made after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if !s.temp {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Link makes a tree's files, with its [Stamp], appear as a folder of its owner's, which
// must not be there. The tree is made where there is none. After an error the folder is
// not there. A tree that would be too large is a fault.Exhausted.
func (s *Store) Link(ctx context.Context, t *Tree, to string) error {
	for again := true; ; again = false {
		files, from, err := s.tree(ctx, t)
		if err != nil {
			return err
		}
		if err = Link(s.link, from, to, files); err == nil {
			touch(from)
			return nil
		}
		_ = os.RemoveAll(to)
		if !again || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.mu.Lock()
		delete(s.trees, t.name()) // another process removed it meanwhile
		s.mu.Unlock()
	}
}

// state gives a tree's state and folder.
func (s *Store) state(t *Tree) (*state, string, error) {
	name := t.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, "", errClosed
	}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "paddock-trees-")
		if err != nil {
			return nil, "", err
		}
		s.dir, s.temp = dir, true
	}
	known := s.trees[name]
	if known == nil {
		if len(s.trees) > 4*maxTrees {
			clear(s.trees)
		}
		known = &state{}
		s.trees[name] = known
	}
	return known, filepath.Join(s.dir, name), nil
}

// tree makes a tree where there is none, and gives its files and its folder.
func (s *Store) tree(ctx context.Context, t *Tree) ([]string, string, error) {
	known, dir, err := s.state(t)
	if err != nil {
		return nil, "", err
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.files != nil || known.refused != nil {
		return known.files, dir, known.refused
	}
	if known.files, err = verify(dir, t.Digest); err == nil {
		return known.files, dir, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	whole := func() bool { _, err := verify(dir, t.Digest); return err == nil }
	err = public.Make(dir, func(fresh string) error { return s.fill(ctx, t, fresh) }, whole)
	if err != nil {
		if errors.Is(err, errTooLarge) {
			known.refused = err
		}
		return nil, "", err
	}
	files, err := verify(dir, t.Digest)
	if err != nil {
		return nil, "", err
	}
	known.files = files
	s.sweep()
	return files, dir, nil
}

// fill writes a tree into a new folder, its stamp last.
func (s *Store) fill(ctx context.Context, t *Tree, fresh string) error {
	own := t.Files()
	sizes := map[string]int64{}
	total := 0
	for _, file := range own {
		if total += len(file.Data); total > maxTree {
			return errTooLarge
		}
		sizes[file.Path] = int64(len(file.Data))
	}
	if err := public.Fill(fresh, own); err != nil {
		return err
	}
	if t.Base != nil {
		files, from, err := s.tree(ctx, t.Base)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(files), func(file string) bool {
			_, replaced := sizes[file]
			return replaced || file == Stamp
		})
		if err := Link(s.link, from, fresh, rest); err != nil {
			return err
		}
		for _, file := range rest {
			info, err := os.Lstat(filepath.Join(fresh, filepath.FromSlash(file)))
			if err != nil {
				return err
			}
			sizes[file] = info.Size()
		}
	}
	return public.write(filepath.Join(fresh, Stamp), File{Data: stampOf(t.Digest, sizes)})
}

// stampOf makes a tree's stamp: its digest, and a line for each file with its size.
func stampOf(digest string, sizes map[string]int64) []byte {
	text := fmt.Appendln(nil, digest)
	for _, file := range slices.Sorted(maps.Keys(sizes)) {
		text = fmt.Appendf(text, "%d %s\n", sizes[file], file)
	}
	return text
}

// entry is a line of a stamp: a file of the tree.
type entry struct {
	path string
	size int64
}

// readStamp gives what a stamp says.
func readStamp(dir string) (digest string, files []entry, err error) {
	f, err := os.Open(filepath.Join(dir, Stamp))
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxTree))
	lines.Scan()
	digest = lines.Text()
	for lines.Scan() {
		number, file, _ := strings.Cut(lines.Text(), " ")
		size, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !filepath.IsLocal(filepath.FromSlash(file)) {
			return "", nil, errNotWhole
		}
		files = append(files, entry{file, size})
	}
	return digest, files, lines.Err()
}

// verify gives the files of a tree, if it is whole: a host that lost its power may have
// kept their names alone.
func verify(dir, digest string) ([]string, error) {
	of, entries, err := readStamp(dir)
	if err == nil && of != digest {
		err = errNotWhole
	}
	if err != nil {
		return nil, err
	}
	files := []string{Stamp}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(e.path)))
		if err != nil || !info.Mode().IsRegular() || info.Size() != e.size {
			return nil, errNotWhole
		}
		files = append(files, e.path)
	}
	return files, nil
}

// MadeOf gives the first line of a folder's stamp, of which no more than 64 bytes are
// read; empty: there is none.
func MadeOf(dir string) string {
	f, err := os.Open(filepath.Join(dir, Stamp))
	if err != nil {
		return ""
	}
	defer f.Close()
	start := make([]byte, 64)
	n, _ := io.ReadFull(f, start)
	line, _, _ := strings.Cut(string(start[:n]), "\n")
	return line
}

// touch notes that a tree is used, to the hour.
func touch(dir string) {
	now := time.Now()
	if info, err := os.Stat(dir); err == nil && now.Sub(info.ModTime()) > time.Hour {
		_ = os.Chtimes(dir, now, now) // otherwise it is made again some day
	}
}

// sweep removes trees that no session was given for long, those beyond what may be kept,
// and what was left half-made. What cannot be removed is tried again another time.
func (s *Store) sweep() {
	s.mu.Lock()
	s.made++
	if s.swept && s.made%sweepEvery != 0 {
		s.mu.Unlock()
		return
	}
	s.swept = true
	dir := s.dir
	s.mu.Unlock()
	for _, path := range unused(dir, time.Now()) {
		gone := filepath.Join(dir, fmt.Sprintf(".old-%d-%s", time.Now().UnixNano(), filepath.Base(path)))
		if err := os.Rename(path, gone); err == nil {
			_ = os.RemoveAll(gone)
		}
	}
}

// unused gives what can be removed from a folder of trees.
func unused(dir string, now time.Time) []string {
	entries, _ := os.ReadDir(dir)
	type tree struct {
		path string
		at   time.Time
		size int64
	}
	var trees []tree
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
		case age > maxAge:
			gone = append(gone, path)
		default:
			_, files, _ := readStamp(path)
			t := tree{path: path, at: info.ModTime()}
			for _, file := range files {
				t.size += file.size
			}
			trees = append(trees, t)
		}
	}
	slices.SortFunc(trees, func(a, b tree) int { return b.at.Compare(a.at) }) // the youngest first
	var size int64
	for i, t := range trees {
		if size += t.size; i >= maxTrees || size > maxBytes {
			gone = append(gone, t.path)
		}
	}
	return gone
}

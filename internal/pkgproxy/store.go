package pkgproxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
)

// digest is what a file has to be: an algorithm and a value in hexadecimal digits.
type digest struct{ algorithm, value string }

// algorithms are those that are believed, the strongest first. SHA-1 is npm's, for
// what was published before 2017.
var algorithms = []struct {
	name string
	size int
	make func() hash.Hash
}{
	{"sha512", sha512.Size, sha512.New},
	{"sha384", sha512.Size384, sha512.New384},
	{"sha256", sha256.Size, sha256.New},
	{"sha1", sha1.Size, sha1.New},
}

// newDigest checks the value; false: it is none that is believed.
func newDigest(algorithm, value string) (digest, bool) {
	value = strings.ToLower(value)
	for _, a := range algorithms {
		if raw, err := hex.DecodeString(value); a.name == algorithm && err == nil && len(raw) == a.size {
			return digest{algorithm, value}, true
		}
	}
	return digest{}, false
}

func (d digest) hash() hash.Hash {
	for _, a := range algorithms {
		if a.name == d.algorithm {
			return a.make()
		}
	}
	panic("pkgproxy: a digest of no algorithm")
}

// strongest is the best of several digests; false: there is none.
func strongest(all []digest) (digest, bool) {
	for _, a := range algorithms {
		if k := slices.IndexFunc(all, func(d digest) bool { return d.algorithm == a.name }); k >= 0 {
			return all[k], true
		}
	}
	return digest{}, false
}

// store is the cache: files by their digests, and answers of indexes by their URLs.
// Several processes may have it open: what is there was renamed into its place, whole,
// and is verified by each process when it first opens it, or finds it changed, and again
// while it is read.
type store struct {
	root        *os.Root
	bytes, file int64

	mu      sync.Mutex
	busy    map[string]*flight     // what is being fetched
	known   map[string]fs.FileInfo // files that were verified, as they were then
	added   int64                  // bytes since the last sweep
	swept   bool
	pending sync.WaitGroup
}

// The folders of the cache.
const (
	filesFolder = "files"
	pagesFolder = "pages"
	newFolder   = "new"
)

// staleTemp is after how long a half-written file belongs to nobody.
const staleTemp = time.Hour

func openStore(dir string, bytes, file int64) (*store, error) {
	if dir == "" {
		return nil, fault.New(fault.Invalid, "the cache of packages has no folder")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache of packages: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the cache of packages: %w", err)
	}
	for _, name := range []string{filesFolder, pagesFolder, buildsFolder, newFolder, workFolder} {
		if err := root.MkdirAll(name, 0o700); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	s := &store{root: root, bytes: bytes, file: file, busy: map[string]*flight{}, known: map[string]fs.FileInfo{}}
	s.pending.Go(s.sweepWork)
	return s, nil
}

func (s *store) close() error {
	s.pending.Wait()
	return s.root.Close()
}

// place is where a file of a digest lies. A SHA-1 counts only together with where the
// file is from, for whoever can make two files of one.
func place(d digest, from string) string {
	name := d.algorithm + "-" + d.value
	if d.algorithm == "sha1" {
		sum := sha256.Sum256([]byte(from))
		name += "-" + hex.EncodeToString(sum[:8])
	}
	return filesFolder + "/" + name
}

// get opens a file of that digest: one that is not what it has to be is removed, and none
// is read to its end that is not. fetch gives it where it is not there. The file is the caller's
// to close; it may be removed from the cache while it is read.
func (s *store) get(ctx context.Context, d digest, from string, fetch func(context.Context) (io.ReadCloser, error)) (*stored, error) {
	name := place(d, from)
	if f, err := s.verified(name, d); err == nil {
		return f, nil
	}
	if err := s.together(ctx, name, func(ctx context.Context) error { return s.fetch(ctx, name, d, from, fetch) }); err != nil {
		return nil, err
	}
	return s.verified(name, d)
}

// fetch puts a file in its place, where it is not there.
func (s *store) fetch(ctx context.Context, name string, d digest, from string, fetch func(context.Context) (io.ReadCloser, error)) error {
	if f, err := s.verified(name, d); err == nil {
		return f.Close()
	}
	body, err := fetch(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := d.hash()
	temp, info, err := s.write(io.TeeReader(&io.LimitedReader{R: body, N: s.file + 1}, sum))
	if err != nil {
		return err
	}
	size := info.Size()
	if got := hex.EncodeToString(sum.Sum(nil)); size > s.file || got != d.value {
		_ = s.root.Remove(temp)
		if size > s.file {
			return fault.New(fault.Exhausted, "%s is larger than %d bytes", from, s.file).WithHint("the operator can allow larger files, in packages.max_file_mb")
		}
		return fault.New(fault.Denied, "%s is not what its index says: its %s is %s, and should be %s", from, d.algorithm, got, d.value).
			WithHint("it may have been tampered with; tell who runs the index")
	}
	if err := s.root.Rename(temp, name); err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	s.remember(name, info)
	s.grow(size)
	return nil
}

// write puts what it reads into a new file, durably, and gives its name.
func (s *store) write(from io.Reader) (name string, info fs.FileInfo, err error) {
	return s.writing(func(f *os.File) error {
		_, err := io.Copy(f, from)
		return err
	})
}

// writing makes a new file of what fill writes into it, durably, and gives its name.
func (s *store) writing(fill func(*os.File) error) (name string, info fs.FileInfo, err error) {
	name = newFolder + "/" + rand.Text()
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err == nil {
		info, err = f.Stat()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", nil, errors.Join(err, s.root.Remove(name))
	}
	return name, info, nil
}

// grow counts what was added, and sweeps after a sixteenth of the bound, and once in
// the beginning.
func (s *store) grow(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.added += n; s.swept && s.added < s.bytes/16 {
		return
	}
	s.added, s.swept = 0, true
	s.pending.Go(func() { s.sweep(time.Now()) })
}

// entry is a file of the cache.
type entry struct {
	name string
	size int64
	used time.Time
}

// sweep removes what was not used for the longest time, until the cache is within its
// bound, and what was left half-written. Another process may do the same.
func (s *store) sweep(now time.Time) {
	var all []entry
	sum := int64(0)
	for _, folder := range []string{filesFolder, pagesFolder, buildsFolder, newFolder} {
		list, err := fs.ReadDir(s.root.FS(), folder)
		if err != nil {
			continue
		}
		for _, e := range list {
			info, err := e.Info()
			if err != nil {
				continue
			}
			name := folder + "/" + e.Name()
			if folder == newFolder {
				if now.Sub(info.ModTime()) > staleTemp {
					_ = s.root.Remove(name)
				}
				continue
			}
			all = append(all, entry{name, info.Size(), info.ModTime()})
			sum += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	for _, e := range all {
		if sum <= s.bytes {
			return
		}
		if s.root.Remove(e.name) == nil {
			sum -= e.size
		}
	}
}

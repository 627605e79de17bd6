package blob_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
)

// faultyStore is a store with manifests that refer to its contents, as package
// session keeps them, on a disk that fails.
type faultyStore struct {
	t     *testing.T
	dir   string
	disk  *blobtest.Disk
	acked map[string]bool // the manifests whose writing was acknowledged and not taken back
}

func newFaultyStore(t *testing.T) *faultyStore {
	dir := t.TempDir()
	disk, err := blobtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &faultyStore{t: t, dir: dir, disk: disk, acked: map[string]bool{}}
}

func (w *faultyStore) manifests() string { return filepath.Join(w.dir, "checkpoints") }

func (w *faultyStore) open() (*blob.Store, error) {
	return blob.Open(filepath.Join(w.dir, "blobs", "owner"), blob.Options{Files: w.disk})
}

// commit puts contents and writes a manifest that refers to them.
func (w *faultyStore) commit(s *blob.Store, name string, contents ...string) error {
	b, err := s.Begin(w.t.Context())
	if err != nil {
		return err
	}
	defer b.Close()
	var refs []blob.Ref
	for _, c := range contents {
		ref, err := b.Put(strings.NewReader(c))
		if err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	if err := b.Sync(w.t.Context()); err != nil {
		return err
	}
	data, err := json.Marshal(refs)
	if err != nil {
		return err
	}
	if err := blob.WriteFile(w.disk, filepath.Join(w.manifests(), name), data); err != nil {
		return err
	}
	w.acked[name] = true
	return nil
}

// refs gives what all manifests refer to. It uses no disk that fails.
func (w *faultyStore) refs() map[string][]blob.Ref {
	w.t.Helper()
	all := map[string][]blob.Ref{}
	entries, err := os.ReadDir(w.manifests())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), blob.TempPrefix) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(w.manifests(), e.Name()))
		var refs []blob.Ref
		if err == nil {
			err = json.Unmarshal(data, &refs)
		}
		if err != nil {
			w.t.Errorf("the manifest %s is half: %v", e.Name(), err)
		}
		all[e.Name()] = refs
	}
	return all
}

func (w *faultyStore) collect(s *blob.Store) error {
	_, _, err := s.Collect(w.t.Context(), func(keep func(blob.Digest)) error {
		for _, refs := range w.refs() {
			for _, r := range refs {
				keep(r.Digest)
			}
		}
		return nil
	})
	return err
}

// script is what a session does: contents that are new, the same and large,
// a checkpoint that goes, a collection. It ends at the first error, as a
// process that died would; errors that callers survive are survived.
func (w *faultyStore) script() error {
	s, err := w.open()
	if err != nil {
		return err
	}
	if err := blob.MakeFolder(w.disk, w.manifests()); err != nil {
		return err
	}
	if err := w.commit(s, "1", "a", "b", noise(150<<10)); err != nil {
		return err
	}
	if err := w.commit(s, "2", "b", strings.Repeat("c", 3000)); err != nil {
		return err
	}
	delete(w.acked, "1")
	if err := w.disk.Remove(filepath.Join(w.manifests(), "1")); err != nil {
		return err
	}
	if err := w.disk.SyncDir(w.manifests()); err != nil { // see Collect
		return err
	}
	if err := w.collect(s); err != nil {
		return err
	}
	if err := w.commit(s, "3", "a", "d"); err != nil {
		return err
	}
	if _, err := s.Bytes(); err != nil {
		return err
	}
	for _, refs := range w.refs() {
		for _, r := range refs {
			if _, err := read(s, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// check looks at what is left with a disk that works.
func (w *faultyStore) check() {
	w.t.Helper()
	s, err := w.open()
	if err != nil {
		w.t.Error(err)
		return
	}
	all := w.refs()
	for name := range w.acked {
		if all[name] == nil {
			w.t.Errorf("the manifest %s was acknowledged, and is gone", name)
		}
	}
	for name, refs := range all {
		for k, r := range refs {
			if _, err := read(s, r); err != nil {
				w.t.Errorf("content %d of manifest %s: %v", k, name, err)
			}
		}
	}
	w.checkNames()
	if err := errors.Join(blob.MakeFolder(w.disk, w.manifests()), w.commit(s, "last", "a", "e"), w.collect(s)); err != nil {
		w.t.Errorf("afterwards the store is of no use: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "blobs", "owner", "new")); err != nil || len(left) > 0 {
		w.t.Errorf("a collection left %v, %v", left, err)
	}
}

// checkNames sees to it that whatever has a name is whole.
func (w *faultyStore) checkNames() {
	s, err := blob.Open(filepath.Join(w.dir, "blobs", "owner"), blob.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "blobs", "owner", "??", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		digest := filepath.Base(filepath.Dir(f)) + filepath.Base(f)
		for _, size := range []int{1, 150 << 10, 3000} {
			var ref blob.Ref
			if err := ref.Digest.UnmarshalText([]byte(digest)); err != nil {
				w.t.Fatal(err)
			}
			ref.Size = int64(size)
			c, err := s.Open(ref)
			if err != nil {
				w.t.Errorf("%s: %v", f, err)
				continue
			}
			h := sha256.New()
			if n, err := io.Copy(h, c); err == nil && hex.EncodeToString(h.Sum(nil)) != digest {
				w.t.Errorf("%s was read with %d bytes of something else", f, n)
			} else if err == nil {
				digest = ""
			}
			c.Close()
			if digest == "" {
				break
			}
		}
		if digest != "" {
			w.t.Errorf("%s has a name and is not whole", f)
		}
	}
}

var thorough = flag.Bool("thorough", false, "try every fault at every operation, and many losses of power")

// steps is how many operations the script takes when nothing fails.
func steps(t *testing.T) int {
	w := newFaultyStore(t)
	if err := w.script(); err != nil {
		t.Fatal(err)
	}
	n := w.disk.Ops()
	w.check()
	return n
}

func TestAnyOperationMayFail(t *testing.T) {
	n := steps(t)
	const every = 3 // the operations of which each fault tries one, so that each gets one or two
	for k, c := range []struct {
		name  string
		fault func(n int) func(blobtest.Op) error
	}{
		{"with an error", func(n int) func(blobtest.Op) error { return blobtest.At(n, syscall.EIO) }},
		{"half done, with an error", func(n int) func(blobtest.Op) error { return blobtest.At(n, blobtest.Torn{Err: syscall.EIO}) }},
		{"and all after it", func(n int) func(blobtest.Op) error { return blobtest.From(n, blobtest.ErrCut) }},
		{"as the disk is full", func(n int) func(blobtest.Op) error { return blobtest.At(n, syscall.ENOSPC) }},
		{"as the disk is full and stays so", blobtest.FullFrom},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := 1; at <= n+1; at++ {
				if (at+k)%every != 0 && !*thorough {
					continue
				}
				w := newFaultyStore(t)
				w.disk.SetFault(c.fault(at))
				_ = w.script() // it may well have gone on
				w.disk.SetFault(nil)
				w.check()
				if t.Failed() {
					t.Fatalf("at operation %d of %d", at, n)
				}
			}
		})
	}
}

func TestThePowerMayGoAtAnyOperation(t *testing.T) {
	n, seeds := steps(t), uint64(2)
	if *thorough {
		seeds = 20
	}
	for at := 1; at <= n+1; at++ {
		for seed := range seeds {
			w := newFaultyStore(t)
			w.disk.SetFault(blobtest.From(at, blobtest.Torn{Err: blobtest.ErrCut}))
			_ = w.script()
			if err := w.disk.Cut(rand.New(rand.NewPCG(uint64(at), seed))); err != nil {
				t.Fatal(err)
			}
			w.check()
			if t.Failed() {
				t.Fatalf("at operation %d of %d, seed %d", at, n, seed)
			}
		}
	}
}

// A name that another batch gave and did not sync is synced by who relies on it.
func TestAnotherBatchsNameIsNotTrustedToLast(t *testing.T) {
	for seed := range uint64(10) {
		w := newFaultyStore(t)
		s, err := w.open()
		if err == nil {
			err = blob.MakeFolder(w.disk, w.manifests())
		}
		if err != nil {
			t.Fatal(err)
		}
		ref := keep(t, s, "a")[0] // its folder is there for good
		if _, _, err := s.Collect(t.Context(), func(func(blob.Digest)) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := w.disk.SyncDir(filepath.Dir(stored(filepath.Join(w.dir, "blobs", "owner"), ref))); err != nil {
			t.Fatal(err)
		}
		w.disk.SetFault(func(op blobtest.Op) error {
			if op.Kind == "syncdir" {
				return syscall.EIO
			}
			return nil
		})
		if err := w.commit(s, "1", "a"); err == nil {
			t.Fatal("it was synced")
		}
		w.disk.SetFault(nil)
		if err := w.commit(s, "2", "a"); err != nil {
			t.Fatal(err)
		}
		if err := w.disk.Cut(rand.New(rand.NewPCG(seed, 3))); err != nil {
			t.Fatal(err)
		}
		w.check()
	}
}

func TestADisksFaultsAreExplained(t *testing.T) {
	for _, c := range []struct {
		name, op string
		err      error
		want     fault.Kind
	}{
		{"a full disk at making a file", "create", syscall.ENOSPC, fault.Exhausted},
		{"a full disk at writing", "write", blobtest.Torn{Err: syscall.ENOSPC}, fault.Exhausted},
		{"a full disk at syncing", "sync", syscall.ENOSPC, fault.Exhausted},
		{"a full disk at making a folder", "mkdir", syscall.ENOSPC, fault.Exhausted},
		{"a disk that cannot be written", "create", syscall.EROFS, fault.Unavailable},
		{"a bad disk", "sync", syscall.EIO, fault.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFaultyStore(t)
			s, err := w.open()
			if err == nil {
				err = blob.MakeFolder(w.disk, w.manifests())
			}
			if err != nil {
				t.Fatal(err)
			}
			w.disk.SetFault(func(op blobtest.Op) error {
				if op.Kind == c.op {
					return c.err
				}
				return nil
			})
			err = w.commit(s, "1", "a", noise(200<<10))
			switch got := fault.Of(err); {
			case got == nil:
				t.Errorf("got %v: got is nil, want a value: %q", err, c.want)
			case got.Kind != c.want:
				t.Errorf("got %v: got.Kind = %v, want %v: %+v", err, got.Kind, c.want, got)
			case got.Hint == "":
				t.Errorf("got %v: got.Hint is empty, want a text: %+v, %q", err, got, c.want)
			}
			w.disk.SetFault(nil)
			if left, err := os.ReadDir(filepath.Join(w.dir, "blobs", "owner", "new")); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
			w.check()
		})
	}
}

func TestAReadErrorIsNoDamage(t *testing.T) {
	w := newFaultyStore(t)
	s, err := w.open()
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"a", strings.Repeat("b", 1<<20)} {
		ref := keep(t, s, content)[0]
		for k := 1; ; k++ {
			w.disk.SetFault(blobtest.At(w.disk.Ops()+k, syscall.EIO))
			got, err := read(s, ref)
			w.disk.SetFault(nil)
			if err == nil {
				if got != content {
					t.Errorf("it was read as %d bytes", len(got))
				}
				break
			}
			if errors.Is(err, blob.ErrDamaged) || !errors.Is(err, syscall.EIO) {
				t.Errorf("a read error at operation %d is %v", k, err)
			}
		}
	}
}

// The disk of the tests has to be able to lose something.
func TestTheDiskLosesWhatIsNotSynced(t *testing.T) {
	lost := map[string]int{}
	for seed := range uint64(50) {
		dir := t.TempDir()
		disk, err := blobtest.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		create := func(name string, syncs ...string) {
			f, err := disk.Create(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Write([]byte(noise(100)))
			for _, what := range syncs {
				if what == "file" {
					err = errors.Join(err, f.Sync())
				} else {
					err = errors.Join(err, disk.SyncDir(dir))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		create("both", "file", "folder")
		create("content", "folder")
		create("name", "file")
		if err := disk.Cut(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"both", "content", "name"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != noise(100) {
				lost[name]++
			}
		}
	}
	if s := fmt.Sprint(lost["both"], lost["content"] > 10, lost["name"] > 10); s != "0 true true" {
		t.Errorf("of what was synced, of contents and of names were lost %v", lost)
	}
}

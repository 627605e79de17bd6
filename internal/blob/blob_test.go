package blob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

func open(t testing.TB, o blob.Options) (*blob.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs", "owner")
	s, err := blob.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func begin(t testing.TB, s *blob.Store) *blob.Batch {
	t.Helper()
	b, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// keep puts contents and syncs them.
func keep(t testing.TB, s *blob.Store, contents ...string) []blob.Ref {
	t.Helper()
	b := begin(t, s)
	var refs []blob.Ref
	for _, c := range contents {
		r, err := b.Put(strings.NewReader(c))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, r)
	}
	if err := errors.Join(b.Sync(t.Context()), b.Close()); err != nil {
		t.Fatal(err)
	}
	return refs
}

func read(s *blob.Store, r blob.Ref) (string, error) {
	c, err := s.Open(r)
	if err != nil {
		return "", err
	}
	defer c.Close()
	data, err := io.ReadAll(c)
	return string(data), err
}

// stored is the file of a content.
func stored(dir string, r blob.Ref) string {
	d := r.Digest.String()
	return filepath.Join(dir, d[:2], d[2:])
}

func wantKind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("got the fault %q (%v), want %q", got, err, want)
	}
}

// noise is a content that cannot be compressed.
func noise(n int) string {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return string(data)
}

var contents = map[string]string{
	"nothing":                      "",
	"a few bytes":                  "x = 42\n",
	"a text that shrinks":          strings.Repeat("the same again ", 1000),
	"noise":                        noise(5000),
	"what just fits into memory":   noise(128 << 10),
	"one byte more":                noise(128<<10 + 1),
	"much that shrinks":            strings.Repeat("0123456789abcdef", 1<<16),
	"much noise":                   noise(1 << 20),
	"noise that is followed by 0s": noise(200<<10) + strings.Repeat("\x00", 1<<20),
}

func TestWhatIsPutComesBack(t *testing.T) {
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			for _, form := range []blob.Form{blob.Plain, blob.Packed} {
				s, dir := open(t, blob.Options{})
				b := begin(t, s)
				w := b.Writer(form)
				for rest := content; rest != ""; { // in odd pieces
					n := min(len(rest), 7777)
					if _, err := w.Write([]byte(rest[:n])); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				ref, err := w.Close()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte("x")); err == nil {
					t.Error("a closed writer took something")
				}
				if err := errors.Join(b.Sync(t.Context()), b.Close(), b.Close()); err != nil {
					t.Fatal(err)
				}
				got, err := read(s, ref)
				switch {
				case err != nil:
					t.Error(err)
				case got != content:
					t.Errorf("got = %v, want %v; %d bytes came back as %d, %v; the ref says %d",
						got, content, len(content), len(got), err, ref.Size)
				case ref.Size != int64(len(content)):
					t.Errorf("ref.Size = %v, want %v: %d, %d", ref.Size, int64(len(content)), len(content), len(got))
				}
				if whole, err := s.Load(ref, int64(len(content))); err != nil || string(whole) != content {
					t.Errorf("%d bytes were loaded as %d, %v", len(content), len(whole), err)
				}
				info, err := os.Stat(stored(dir, ref))
				if err != nil || info.Size() != ref.Stored {
					t.Errorf("the file has %v, %v; the ref says %d", info, err, ref.Stored)
				}
				if runtime.GOOS != "windows" && info.Mode() != 0o600 {
					t.Errorf("the file is %v", info.Mode())
				}
				if ref.Stored > int64(len(content))+8 {
					t.Errorf("%d bytes became %d", len(content), ref.Stored)
				}
				if strings.Contains(name, "shrinks") == (ref.Stored > int64(len(content)/2)) && form == blob.Plain {
					t.Errorf("%d bytes became %d", len(content), ref.Stored)
				}
				if err := s.Check([]blob.Ref{ref}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestARefIsJSONWithHexDigits(t *testing.T) {
	s, _ := open(t, blob.Options{})
	ref := keep(t, s, "hello")[0]
	data, err := json.Marshal(ref)
	if want := `{"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","size":5,"stored":13}`; err != nil || string(data) != want {
		t.Errorf("got %s, %v", data, err)
	}
	var back blob.Ref
	if err := json.Unmarshal(data, &back); err != nil || back != ref {
		t.Errorf("got %v, %v", back, err)
	}
	for _, bad := range []string{"", "../../etc/passwd", strings.Repeat("0", 63), strings.Repeat("g", 64), strings.Repeat("A", 64)} {
		if err := new(blob.Digest).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("the digest %q was taken", bad)
		}
	}
}

func TestAContentIsWrittenOnce(t *testing.T) {
	s, dir := open(t, blob.Options{})
	big := noise(1 << 20)
	refs := keep(t, s, "a", big, "a", big)
	if refs[0] != refs[2] || refs[1] != refs[3] {
		t.Errorf("the same contents have the refs %v", refs)
	}
	before, err := os.Stat(stored(dir, refs[1]))
	if err != nil {
		t.Fatal(err)
	}
	if again := keep(t, s, big, "a"); again[0] != refs[1] || again[1] != refs[0] {
		t.Errorf("got the refs %v, want %v", again, refs)
	}
	if after, err := os.Stat(stored(dir, refs[1])); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was written again (%v)", err)
	}
}

func TestNothingDamagedIsTakenForGood(t *testing.T) {
	for _, content := range []string{"a short text", strings.Repeat("a long text ", 100)} {
		s, dir := open(t, blob.Options{})
		ref := keep(t, s, content)[0]
		whole, err := os.ReadFile(stored(dir, ref))
		if err != nil {
			t.Fatal(err)
		}
		variants := [][]byte{nil, append(bytes.Clone(whole), 'x'), []byte("something else altogether")}
		for k := range whole {
			for _, flip := range []byte{1, 0x80, 0xff} {
				v := bytes.Clone(whole)
				v[k] ^= flip
				variants = append(variants, v)
			}
			variants = append(variants, whole[:k])
		}
		for _, v := range variants {
			if err := os.WriteFile(stored(dir, ref), v, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := read(s, ref)
			if err == nil && got != content || err != nil && !errors.Is(err, blob.ErrDamaged) {
				t.Errorf("%q was read as %q, %v", v, got, err)
			}
			if err != nil {
				wantKind(t, err, fault.Internal)
			}
			if _, loadErr := s.Load(ref, 1<<20); (loadErr == nil) != (err == nil) {
				t.Errorf("%q was read with %v and loaded with %v", v, err, loadErr)
			}
			if checkErr := s.Check([]blob.Ref{ref}); len(v) != len(whole) && !errors.Is(checkErr, blob.ErrDamaged) && err != nil {
				t.Errorf("%q has another size, and was found whole (%v)", v, checkErr)
			}
		}
		keep(t, s, content) // the last variant lies there
		if got, err := read(s, ref); err != nil || got != content {
			t.Errorf("putting it again gave %q, %v", got, err)
		}
	}
}

func TestAnotherSizeThanTheRefsIsDamage(t *testing.T) {
	s, _ := open(t, blob.Options{})
	ref := keep(t, s, strings.Repeat("x", 1000))[0]
	for _, size := range []int64{0, 999, 1001, -1} {
		wrong := ref
		wrong.Size = size
		if _, err := read(s, wrong); !errors.Is(err, blob.ErrDamaged) {
			t.Errorf("with the size %d: %v", size, err)
		}
	}
	_, err := s.Load(ref, 999)
	wantKind(t, err, fault.Exhausted)
}

func TestWhatIsNotThereIsMissing(t *testing.T) {
	s, dir := open(t, blob.Options{})
	ref := keep(t, s, "a")[0]
	if err := os.Remove(stored(dir, ref)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []blob.Ref{ref, {}} {
		if _, err := read(s, r); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("reading: %v", err)
		}
		if err := s.Check([]blob.Ref{r}); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("checking: %v", err)
		}
	}
}

func TestABatchThatIsNotSyncedLeavesNothing(t *testing.T) {
	s, dir := open(t, blob.Options{})
	b := begin(t, s)
	ref, err := b.Put(strings.NewReader("given up"))
	if err != nil {
		t.Fatal(err)
	}
	w := b.Writer(blob.Plain)
	if _, err := io.WriteString(w, noise(1<<20)); err != nil {
		t.Fatal(err)
	}
	w.Discard()
	w.Discard()
	unfinished := b.Writer(blob.Packed)
	if _, err := io.WriteString(unfinished, noise(1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	unfinished.Discard()
	if _, err := read(s, ref); !errors.Is(err, blob.ErrMissing) {
		t.Errorf("it is there: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "new")); err != nil || len(left) != 0 {
		t.Errorf("there is left %v, %v", left, err)
	}
	if _, err := b.Put(strings.NewReader("late")); err == nil {
		t.Error("a closed batch took something")
	}
	if err := b.Sync(t.Context()); err == nil {
		t.Error("a closed batch was synced")
	}
}

func TestAnErrorOfTheSourceIsGivenBack(t *testing.T) {
	s, _ := open(t, blob.Options{})
	b := begin(t, s)
	broken := errors.New("the source broke")
	for _, n := range []int{10, 1 << 20} {
		src := io.MultiReader(strings.NewReader(noise(n)), readerOf(func([]byte) (int, error) { return 0, broken }))
		if _, err := b.Put(src); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if err := b.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

type readerOf func([]byte) (int, error)

func (r readerOf) Read(p []byte) (int, error) { return r(p) }

func TestCollectRemovesWhatNobodyKeeps(t *testing.T) {
	s, dir := open(t, blob.Options{})
	refs := keep(t, s, "kept", "dropped", noise(100<<10))
	torn := filepath.Join(dir, "new", "TORN")
	stranger := filepath.Join(filepath.Dir(stored(dir, refs[0])), "README")
	for _, p := range []string{torn, stranger} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := errors.New("a manifest cannot be read")
	if n, _, err := s.Collect(t.Context(), func(func(blob.Digest)) error { return stop }); !errors.Is(err, stop) || n != 0 {
		t.Errorf("without knowing what is kept %d were removed, %v", n, err)
	}
	if err := s.Check(refs); err != nil {
		t.Error(err)
	}
	n, bytes, err := s.Collect(t.Context(), func(keep func(blob.Digest)) error {
		keep(refs[0].Digest)
		return nil
	})
	switch {
	case err != nil:
		t.Error(err)
	case n != 2:
		t.Errorf("n = %v, want 2: %d", n, bytes)
	case bytes != 4<<10+104<<10:
		t.Errorf("bytes = %v, want %v: %d", bytes, 4<<10+104<<10, n)
	}
	if got, err := read(s, refs[0]); err != nil || got != "kept" {
		t.Errorf("what was kept is %q, %v", got, err)
	}
	for _, r := range refs[1:] {
		if _, err := read(s, r); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("what was dropped gives %v", err)
		}
	}
	if _, err := os.Stat(torn); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old temporary file is there: %v", err)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Errorf("somebody else's file is gone: %v", err)
	}
	keep(t, s, "dropped")
}

// lingering is a disk that takes seconds to remove a file.
type lingering struct{ blob.Files }

func (l lingering) Remove(name string) error {
	time.Sleep(2 * time.Second)
	return l.Files.Remove(name)
}

// Who waits for a collection gives up sooner than a large one ends: it goes on another time.
func TestALongCollectionGoesOnAnotherTime(t *testing.T) {
	s, _ := open(t, blob.Options{Files: lingering{blob.OS}, LockTimeout: 10 * time.Second})
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprint("content ", i))
	}
	keep(t, s, all...)
	synctest.Test(t, func(t *testing.T) {
		removed, rounds := 0, 0
		for ; removed < len(all) && rounds < 20; rounds++ {
			began := time.Now()
			n, _, err := s.Collect(t.Context(), func(func(blob.Digest)) error { return nil })
			if took := time.Since(began); err != nil || took > 8*time.Second {
				t.Errorf("it took %v, %v", took, err)
			}
			if removed += n; s.Unfinished() != (removed < len(all)) {
				t.Errorf("%d of %d are removed; more is left: %v", removed, len(all), s.Unfinished())
			}
		}
		if removed != len(all) || rounds < 2 {
			t.Errorf("%d of %d were removed in %d rounds", removed, len(all), rounds)
		}
	})
	if n, err := s.Bytes(); n != 0 || err != nil {
		t.Errorf("they take %d bytes, %v", n, err)
	}
}

func TestCollectionsAndBatchesKeepEachOtherOut(t *testing.T) {
	s, dir := open(t, blob.Options{LockTimeout: 20 * time.Millisecond})
	other, err := blob.Open(dir, blob.Options{LockTimeout: 20 * time.Millisecond}) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	b := begin(t, s)
	_, _, err = other.Collect(t.Context(), func(func(blob.Digest)) error { t.Error("it was let in"); return nil })
	wantKind(t, err, fault.Conflict)
	second, err := other.Begin(t.Context())
	if err != nil {
		t.Errorf("two batches at once: %v", err)
	} else if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err = other.Collect(t.Context(), func(func(blob.Digest)) error {
		_, err := s.Begin(t.Context())
		wantKind(t, err, fault.Unavailable)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Begin(ctx)
		wantKind(t, err, fault.Cancelled)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

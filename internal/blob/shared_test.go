package blob_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

func TestBytesFollowsAllProcesses(t *testing.T) {
	a, dir := open(t, blob.Options{})
	b, err := blob.Open(dir, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(bytes int64) {
		t.Helper()
		for _, s := range []*blob.Store{a, b} {
			if got, err := s.Bytes(); err != nil || got != bytes {
				t.Errorf("it takes %d bytes (%v), want %d", got, err, bytes)
			}
		}
	}
	want(0)
	refs := keep(t, a, "one")
	want(4 << 10)
	keep(t, b, noise(8<<10), "two")
	keep(t, a, "two", "three")
	want(4<<10 + 12<<10 + 4<<10 + 4<<10)
	for range 3 {
		if _, _, err := b.Collect(t.Context(), func(keep func(blob.Digest)) error { keep(refs[0].Digest); return nil }); err != nil {
			t.Fatal(err)
		}
		want(4 << 10)
		keep(t, b, "four")
		want(8 << 10)
	}
	// Who did not look while much was told is not confused by what is told now.
	idle, err := blob.Open(dir, blob.Options{})
	if err == nil {
		_, err = idle.Bytes()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Collect(t.Context(), func(func(blob.Digest)) error { return nil }); err != nil {
		t.Fatal(err)
	}
	keep(t, a, "four", "five", "and more")
	keep(t, a, "six")
	if got, err := idle.Bytes(); err != nil || got != 16<<10 {
		t.Errorf("who was idle finds %d bytes, %v", got, err)
	}
	if _, _, err := b.Collect(t.Context(), func(keep func(blob.Digest)) error { keep(refs[0].Digest); return nil }); err != nil {
		t.Fatal(err)
	}
	refs = keep(t, a, "one", "four")
	want(8 << 10)
	if err := os.Remove(filepath.Join(dir, "changes")); err != nil {
		t.Fatal(err)
	}
	want(8 << 10)
}

func TestManyUseOneStore(t *testing.T) {
	_, dir := open(t, blob.Options{})
	var (
		mu   sync.Mutex
		live = map[blob.Digest]blob.Ref{} // what a manifest would refer to
		wg   sync.WaitGroup
	)
	for k := range 4 {
		wg.Go(func() {
			s, err := blob.Open(dir, blob.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			r := rand.New(rand.NewPCG(1, uint64(k)))
			for range 25 {
				b, err := s.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				var refs []blob.Ref
				for range 3 { // contents that others put as well
					ref, err := b.Put(strings.NewReader(noise(1 + r.IntN(20))))
					if err != nil {
						t.Error(err)
					}
					refs = append(refs, ref)
				}
				if err := b.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, ref := range refs {
					live[ref.Digest] = ref
				}
				mu.Unlock()
				b.Close()
				if r.IntN(5) > 0 {
					continue
				}
				_, _, err = s.Collect(t.Context(), func(keep func(blob.Digest)) error {
					mu.Lock()
					defer mu.Unlock()
					for d := range live {
						if r.IntN(2) == 0 {
							delete(live, d)
						} else {
							keep(d)
						}
					}
					return nil
				})
				if err != nil && fault.KindOf(err) != fault.Conflict {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := blob.Open(dir, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range live {
		if got, err := read(s, ref); err != nil || int64(len(got)) != ref.Size {
			t.Errorf("%v: %q, %v", ref, got, err)
		}
	}
}

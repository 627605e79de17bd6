package quota_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/quota"
	"paddock/internal/store"
)

// shelf is an owner's folder, of sessions that all take 4 KiB, and an index of it.
type shelf struct {
	*quota.Disk
	t      testing.TB
	dir    string
	index  *store.Store
	strays map[string]bool // what lies there and is not a session
	read   int             // how many sessions were read
	missed int             // how often it was told that the index is not complete
}

const each = 4096

func newShelf(t testing.TB, sessions int) *shelf {
	t.Helper()
	h := &shelf{t: t, dir: t.TempDir(), strays: map[string]bool{}}
	index := filepath.Join(t.TempDir(), "index.db")
	h.index = store.Open(index, nil)
	t.Cleanup(func() { h.index.Close() })
	h.Disk = quota.NewDisk(quota.DiskConfig{
		Index: h.index, Folder: func(string) string { return h.dir }, IDs: h.ids, Bytes: h.bytes,
		All: func(owner string) (map[string]int64, error) {
			ids, err := h.ids(owner)
			all := map[string]int64{}
			for _, id := range ids {
				if bytes, err := h.bytes(owner, id); err == nil {
					all[id] = bytes
				}
			}
			return all, err
		},
		Incomplete: func() { h.missed++ }, Log: slog.New(slog.DiscardHandler),
	})
	for n := range sessions {
		h.add(fmt.Sprintf("s-%05d", n), true)
	}
	r, err := h.index.Rebuild(t.Context())
	if err == nil {
		err = r.Finish(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := range sessions {
		h.index.PutSession(store.Session{Owner: "alice", ID: fmt.Sprintf("s-%05d", n), TreeBytes: each})
	}
	h.settle()
	return h
}

// add adds a session to the folder.
func (h *shelf) add(id string, session bool) {
	h.t.Helper()
	h.strays[id] = !session
	if err := os.Mkdir(filepath.Join(h.dir, id), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

// settle has the folder look as where nobody changed it for a minute.
func (h *shelf) settle() {
	h.t.Helper()
	info, err := os.Stat(h.dir)
	if err == nil {
		old := info.ModTime().Add(-time.Minute)
		err = os.Chtimes(h.dir, old, old)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *shelf) ids(string) (names []string, err error) {
	entries, err := os.ReadDir(h.dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (h *shelf) bytes(_, id string) (int64, error) {
	h.read++
	if h.strays[id] {
		return 0, fault.New(fault.NotFound, "it is none")
	}
	return each, nil
}

// want checks what there is, looked at again, and how many sessions are read for it.
func (h *shelf) want(sessions int, bytes int64, read int, open map[string]int64) {
	h.t.Helper()
	h.read = 0
	h.Forget("alice")
	got, err := h.Of("alice", open)
	if want := (quota.Taken{Sessions: sessions, Bytes: bytes}); err != nil || got != want || h.read > read {
		h.t.Errorf("there is %+v, %v, want %+v; %d sessions were read", got, err, want, h.read)
	}
}

func TestTheIndexsSumsAreTrustedAsFarAsTheyAreOfTheFolder(t *testing.T) {
	h := newShelf(t, 3)
	h.want(3, 3*each, 0, nil)
	h.add("missing", true)
	h.add("stray", false)
	h.want(4, 4*each, 2, nil)
	h.want(4, 4*each, 0, nil) // it is known what is different
	h.want(4, 3*each+10, 0, map[string]int64{"missing": 10})
	h.want(4, 3*each+20, 0, map[string]int64{"s-00000": 20})
	h.index.PutSession(store.Session{Owner: "alice", ID: "ghost", TreeBytes: 1 << 30})
	h.want(4, 4*each, 2, nil)
	if err := os.Remove(filepath.Join(h.dir, "s-00000")); err != nil {
		t.Fatal(err)
	}
	h.want(3, 3*each, 2, nil)
	if h.missed != 0 {
		t.Errorf("the index was not complete %d times", h.missed)
	}
}

// What a folder's time does not tell from another is looked at again.
func TestTwoSessionsOfOneMomentAreBothSeen(t *testing.T) {
	h := newShelf(t, 1)
	h.add("first", true)
	info, err := os.Stat(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.want(2, 2*each, 1, nil)
	h.add("second", true)
	if err := os.Chtimes(h.dir, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	h.want(3, 3*each, 2, nil)
}

func TestWhereTheIndexDoesNotKnowAllSessionsAreRead(t *testing.T) {
	h := newShelf(t, 3)
	if err := h.index.Close(); err != nil {
		t.Fatal(err)
	}
	h.want(3, 3*each, 3, nil)
	if h.read != 3 {
		t.Errorf("%d were read", h.read)
	}
}

func TestWhatIsKnownIsKeptUpAndLookedAtWhenAsked(t *testing.T) {
	h := newShelf(t, 2)
	h.want(2, 2*each, 0, nil)
	h.Note("alice", "new", 10, false)
	h.Note("alice", "s-00000", each, true) // of whom it is known in the sum alone
	if got, err := h.Of("alice", nil); err != nil || got.Sessions != 3 || got.Bytes != 2*each+10 {
		t.Errorf("with a new one there is %+v, %v", got, err)
	}
	h.Note("bob", "first", 10, false) // of whom nothing is known
	now, sizes, err := h.Now("alice", map[string]int64{"s-00001": 7})
	if err != nil || now.Sessions != 2 || now.Bytes != each+7 || sizes["s-00001"] != 7 || sizes["s-00000"] != each {
		t.Errorf("now there is %+v, %v, %v", now, sizes, err)
	}
	if err := os.RemoveAll(h.dir); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Of("carol", nil); err != nil || got != (quota.Taken{}) {
		t.Errorf("who has no folder takes %+v, %v", got, err)
	}
	if _, _, err := h.Now("alice", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what cannot be read is %v", err)
	}
}

// BenchmarkDisk10000 is what it takes to find out what an owner with 10,000 sleeping
// sessions has, when what is known is too old.
func BenchmarkDisk10000(b *testing.B) {
	h := newShelf(b, 10_000)
	n := 0
	b.Run("nothing changed", func(b *testing.B) {
		for b.Loop() {
			h.want(10_000+n, int64(10_000+n)*each, 0, nil)
		}
	})
	b.Run("one session more", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			n++
			h.add(fmt.Sprintf("new-%d", n), true)
			b.StartTimer()
			h.want(10_000+n, int64(10_000+n)*each, n, nil)
		}
	})
}

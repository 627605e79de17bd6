package store

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
)

// fresh opens an index in a new folder and marks it as complete.
func fresh(t *testing.T) *Store {
	t.Helper()
	s := opened(t, filepath.Join(t.TempDir(), "index.db"))
	complete(t, s)
	return s
}

func opened(t *testing.T, path string) *Store {
	t.Helper()
	s := open(path, logger(t), patient(migrations))
	t.Cleanup(func() { s.Close() })
	return s
}

// patient are terms for tests on a machine that has other things to do.
func patient(schema []migration) options {
	t := usual
	t.schema, t.readTimeout = schema, time.Minute
	return t
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// complete rebuilds the index from nothing.
func complete(t *testing.T, s *Store) {
	t.Helper()
	rebuild(t, s, nil)
	if !s.Complete() {
		t.Fatal("it is not complete after a rebuild")
	}
}

func rebuild(t *testing.T, s *Store, owners map[string][]Session) {
	t.Helper()
	r, err := s.Rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for owner, sessions := range owners {
		if err := r.Owner(t.Context(), owner, sessions); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, s *Store) {
	t.Helper()
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// heads are the numbers of the current checkpoints of an owner's sessions.
func heads(t *testing.T, s *Store, owner string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, r := range sessions(t, s, owner) {
		all[r.ID] = r.Head
	}
	return all
}

func sessions(t *testing.T, s *Store, owner string) []Session {
	t.Helper()
	all, err := s.Sessions(owner)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func ids(t *testing.T, s *Store, owner string) (all []string) {
	t.Helper()
	for _, r := range sessions(t, s, owner) {
		all = append(all, r.ID)
	}
	return all
}

func wantIDs(t *testing.T, s *Store, owner string, want ...string) {
	t.Helper()
	if got := ids(t, s, owner); !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q", owner, got, want)
	}
}

func TestWhatIsPutComesBack(t *testing.T) {
	s := fresh(t)
	for _, owner := range []string{"local", "", "a'b\"c;--", "nul\x00in it", "not UTF-8 \xff\xfe", strings.Repeat("long", 1000)} {
		want := Session{
			Owner: owner, ID: owner + "1", Folder: "f\x00", Isolation: "wasm", Language: "python", Name: "⚙ 'name'",
			CreatedAt: time.Date(2026, 10, 1, 1, 2, 3, 4, time.UTC), LastUsedAt: time.Date(2026, 10, 1, 1, 2, 3, 5, time.UTC),
			ExpiresAt: time.Unix(0, 1<<63-1).UTC(), Executions: 1<<63 - 1, TreeBytes: -1, Checkpoints: 2, Head: 7, Record: []byte("\x00\xff{}"),
		}
		s.PutSession(want)
		if got := sessions(t, s, owner); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("of %q came back %+v, want %+v", owner, got, want)
		}
		switch got, sizes, err := s.Totals(owner, want.ID, "another"); {
		case err != nil:
			t.Errorf("the totals of %q: %v", owner, err)
		case got != (Totals{1, -1, NameSum(want.ID)}):
			t.Errorf("the totals of %q: got = %v, want %v: %v",
				owner, got, (Totals{1, -1, NameSum(want.ID)}), sizes)
		case !maps.Equal(sizes, map[string]int64{want.ID: -1}):
			t.Errorf("the totals of %q: sizes = %v, want %v: %+v",
				owner, sizes, map[string]int64{want.ID: -1}, got)
		}
	}
	s.PutSession(Session{Owner: "zero", ID: "z"})
	if got := sessions(t, s, "zero"); len(got) != 1 || !reflect.DeepEqual(got[0], Session{Owner: "zero", ID: "z"}) {
		t.Errorf("the zero row came back as %+v", got)
	}
}

func TestTimesOutsideOfNanosecondsAreTheNearest(t *testing.T) {
	for _, c := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 1<<63-1)},
		{time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 1)},
		{time.Unix(0, 1<<62), time.Unix(0, 1<<62)},
	} {
		if got := unstamp(stamp(c.in)); !got.Equal(c.want) {
			t.Errorf("%v becomes %v, want %v", c.in, got, c.want)
		}
	}
}

func TestARecordIsCopied(t *testing.T) {
	s := fresh(t)
	r := example("local", 1)
	r.Record = []byte("before")
	s.PutSession(r)
	copy(r.Record, "after!")
	if got := sessions(t, s, "local"); string(got[0].Record) != "before" {
		t.Errorf("it is %q", got[0].Record)
	}
}

func TestSessionsAreInTheOrderOfTheirMaking(t *testing.T) {
	s := fresh(t)
	for i, id := range []string{"c", "a", "b", "d"} {
		s.PutSession(Session{Owner: "local", ID: id, CreatedAt: time.Unix(int64([]int{2, 3, 2, 1}[i]), 0), ExpiresAt: time.Unix(int64(10*(i+1)), 0), TreeBytes: int64(i), Checkpoints: 2, Head: int64(i)})
	}
	s.PutSession(Session{Owner: "bob", ID: "never", TreeBytes: 100})
	wantIDs(t, s, "local", "d", "b", "c", "a")
	wantIDs(t, s, "bob", "never")
	wantIDs(t, s, "nobody")
	for _, c := range []struct {
		at    int64
		limit int
		want  string
	}{{9, 9, ""}, {10, 9, "c"}, {35, 9, "c a b"}, {35, 2, "c a"}, {1000, 9, "c a b d"}} {
		var got []string
		all, err := s.Expired(time.Unix(c.at, 0), c.limit)
		for _, r := range all {
			got = append(got, r.ID)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("at %d have expired %v, %v, want %s", c.at, got, err, c.want)
		}
	}
}

func TestTheNewerOfTwoRowsStays(t *testing.T) {
	row := func(made, head, used int64) Session {
		return Session{Owner: "local", ID: "s", CreatedAt: time.Unix(made, 0), Head: head, LastUsedAt: time.Unix(used, 0)}
	}
	for name, c := range map[string]struct {
		first, second Session
		stays         bool // the first
	}{
		"a greater head":                       {row(1, 1, 9), row(1, 2, 1), false},
		"a later use":                          {row(1, 1, 1), row(1, 1, 2), false},
		"the same":                             {row(1, 1, 1), row(1, 1, 1), false},
		"a smaller head":                       {row(1, 2, 1), row(1, 1, 9), true},
		"an earlier use":                       {row(1, 2, 2), row(1, 2, 1), true},
		"another session of the same name":     {row(1, 9, 9), row(2, 1, 1), false},
		"another one, with a time of long ago": {row(2, 9, 9), row(1, 1, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			s.PutSession(c.first)
			flush(t, s)
			s.PutSession(c.second)
			want := c.second
			if c.stays {
				want = c.first
			}
			switch got := sessions(t, s, "local"); {
			case len(got) != 1:
				t.Errorf("len(got) = %d, want 1: %+v", len(got), got)
			case got[0].Head != want.Head:
				t.Errorf("got[0].Head = %v, want %v: %+v", got[0].Head, want.Head, got)
			case !got[0].LastUsedAt.Equal(want.LastUsedAt):
				t.Errorf("got[0].LastUsedAt.Equal(want.LastUsedAt) = false, want true: %+v", got)
			case !got[0].CreatedAt.Equal(want.CreatedAt):
				t.Errorf("got[0].CreatedAt.Equal(want.CreatedAt) = false, want true: %+v", got)
			}
		})
	}
}

// model is what an index should hold: sessions' heads, which are their TreeBytes
// too.
type model map[key]int64

// play makes a random change to a random session of a few.
func (m model) play(s *Store, dice *rand.Rand, head int64) key {
	k := key{fmt.Sprint("owner ", dice.IntN(3)), fmt.Sprint("s-", dice.IntN(4))}
	if dice.IntN(3) == 0 {
		s.DeleteSession(k.owner, k.id)
		delete(m, k)
	} else {
		s.PutSession(Session{Owner: k.owner, ID: k.id, Head: head, TreeBytes: head})
		m[k] = head
	}
	return k
}

func TestAnySequenceOfChangesGivesWhatAMapWould(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	s := fresh(t)
	m := model{}
	for i := range 3000 {
		k := m.play(s, dice, int64(i))
		switch {
		case dice.IntN(10) == 0:
			m.compare(t, s, k)
		case dice.IntN(200) == 0:
			path := s.path
			s.Close()
			s = opened(t, path)
		}
		if t.Failed() {
			return
		}
	}
}

func TestWhatCouldNotBeWrittenIsWrittenInItsOrder(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 4))
	s := hasty(t)
	m := model{}
	for i := range 100 {
		head := int64(100 * i)
		play := func() {
			for range 10 {
				m.play(s, dice, head)
				head++
			}
		}
		failed := make(chan struct{})
		play()
		write(s, func(*conn) error {
			select {
			case <-failed:
				return nil
			default:
			}
			play() // while the writer has in hand what was before
			close(failed)
			return errors.New("not now")
		})
		<-failed
		play()
		settle(t, s, nil)
		for j := range 12 {
			m.compare(t, s, key{fmt.Sprint("owner ", j%3), fmt.Sprint("s-", j/3)})
		}
		if t.Failed() {
			return
		}
	}
}

func (m model) compare(t *testing.T, s *Store, k key) {
	t.Helper()
	want := map[string]int64{}
	var sum Totals
	for other, head := range m {
		if other.owner == k.owner {
			want[other.id] = head
			sum = Totals{sum.Sessions + 1, sum.TreeBytes + head, sum.NameSum + NameSum(other.id)}
		}
	}
	if got := heads(t, s, k.owner); !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", k.owner, got, want)
	}
	if got, err := s.Sizes(k.owner); err != nil || !maps.Equal(got, want) {
		t.Errorf("%s has the sizes %v, %v, want %v", k.owner, got, err, want)
	}
	if got, _, err := s.Totals(k.owner); err != nil || got != sum {
		t.Errorf("%s has the totals %v, %v, want %v", k.owner, got, err, sum)
	}
}

// write queues any change.
func write(s *Store, c change) { s.enqueue(func(q *queue) { q.add(c) }) }

func TestANewIndexIsNotCompleteAndARebuiltOneStaysComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	s, other := opened(t, path), opened(t, path)
	s.PutSession(example("local", 1))
	if s.Complete() || other.Complete() {
		t.Error("a new index calls itself complete")
	}
	_, err := s.Sessions("local")
	if !errors.Is(err, ErrIncomplete) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("reading it gives %v", err)
	}
	rebuild(t, s, map[string][]Session{"local": {example("local", 1), example("local", 2)}})
	wantIDs(t, other, "local", "s-00001", "s-00002")
	s.Close()
	other.Close()
	if left, err := filepath.Glob(path + "*"); err != nil || !slices.Equal(left, []string{path, path + ".lock"}) {
		t.Errorf("there are %q, %v", left, err)
	}
	if again := opened(t, path); !again.Complete() {
		t.Error("it is no longer complete when it is opened again")
	} else {
		wantIDs(t, again, "local", "s-00001", "s-00002")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 && filepath.Separator == '/' {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
}

func TestARebuildDoesNotUndoWhatHappensMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	s, other := opened(t, path), opened(t, path)
	for i := range 6 {
		s.PutSession(example("local", i))
	}
	s.PutSession(example("ghost", 1)) // an owner who has nothing any more
	r, err := s.Rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var truth []Session
	for i := range 10 { // 0 is gone, 6 and more were not known
		row := example("", i)
		row.Name = "as it was read"
		if i > 0 {
			truth = append(truth, row)
		}
	}
	other.DeleteSession("local", "s-00001") // which the index had
	other.DeleteSession("local", "s-00009") // which it had not
	newer := example("local", 2)
	newer.Head, newer.Name = 100, "put meanwhile"
	other.PutSession(newer)
	other.PutSession(example("local", 50))
	other.PutSession(example("new", 1))
	flush(t, other)
	if err := r.Owner(t.Context(), "local", truth); err != nil {
		t.Fatal(err)
	}
	if s.Complete() {
		t.Error("it calls itself complete before the rebuild has finished")
	}
	if err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, s, "local", "s-00002", "s-00003", "s-00004", "s-00005", "s-00006", "s-00007", "s-00008", "s-00050")
	wantIDs(t, s, "ghost")
	wantIDs(t, s, "new", "s-00001")
	for i, r := range sessions(t, s, "local")[:7] {
		if want := map[bool]string{true: "put meanwhile", false: "as it was read"}[i == 0]; r.Name != want {
			t.Errorf("%s is %q, want %q", r.ID, r.Name, want)
		}
	}
	want := Totals{Sessions: 8}
	for _, r := range sessions(t, s, "local") {
		want.TreeBytes, want.NameSum = want.TreeBytes+r.TreeBytes, want.NameSum+NameSum(r.ID)
	}
	for owner, want := range map[string]Totals{"local": want, "ghost": {}, "nobody": {}} {
		if got, _, err := s.Totals(owner); err != nil || got != want {
			t.Errorf("the totals of %s are %v, %v, want %v", owner, got, err, want)
		}
	}
}

func TestARebuildOfAFileThatWasLostIsDoneAgain(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "index.db"))
	r, err := s.Rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	remove(t, s.path)
	if err := r.Finish(t.Context()); fault.KindOf(err) != fault.Conflict {
		t.Errorf("finishing gives %v", err)
	}
	if s.Complete() {
		t.Error("the new file calls itself complete")
	}
	complete(t, s)
}

func TestManyGoroutinesAndStoresUseOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	complete(t, opened(t, path))
	var jobs sync.WaitGroup
	for w := range 4 {
		jobs.Go(func() {
			s := open(path, logger(t), patient(migrations))
			defer s.Close()
			for i := range 50 {
				r := example(fmt.Sprint("owner ", w), i)
				s.PutSession(r)
				if got, _, err := s.Totals(r.Owner); err == nil && got.Sessions != int64(i)+1 {
					t.Errorf("what was put is not read: %v", got)
				}
			}
		})
	}
	jobs.Wait()
	s := opened(t, path)
	for w := range 4 {
		if got := sessions(t, s, fmt.Sprint("owner ", w)); len(got) != 50 {
			t.Errorf("of 50 sessions there are %d", len(got))
		}
	}
}

func TestAClosedStoreTakesAndReadsNothing(t *testing.T) {
	s := fresh(t)
	s.PutSession(example("local", 1))
	r, err := s.Rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	s.PutSession(example("local", 2))
	s.DeleteSession("local", "s-00001")
	for name, err := range map[string]error{"await": s.await(t.Context()), "Finish": r.Finish(t.Context())} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s gives %v", name, err)
		}
	}
	if _, err := s.Sessions("local"); !errors.Is(err, ErrUnavailable) || s.Complete() {
		t.Errorf("reading gives %v", err)
	}
	wantIDs(t, opened(t, s.path), "local", "s-00001")
}

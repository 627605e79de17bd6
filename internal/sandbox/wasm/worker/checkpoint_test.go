package worker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// subject is a memory with its history, and what it was at each mark.
type subject struct {
	snapshots
	memory *linear.Memory
	now    []byte
	was    map[string][]byte
}

const (
	subjectBytes = 1 << 20
	largeBytes   = 16 << 20 // so many pages that what was written is not looked for by comparing, where it need not be
)

func newMemory(t *testing.T, size uint64) *linear.Memory {
	t.Helper()
	m, err := linear.New(nil, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	if m.Reallocate(size) == nil {
		t.Fatal("there is no memory")
	}
	return m
}

func newSubject(t *testing.T, p *pages) *subject { return newSized(t, p, subjectBytes) }

func newSized(t *testing.T, p *pages, size uint64) *subject {
	return &subject{snapshots: snapshots{pages: p}, memory: newMemory(t, size), now: make([]byte, size), was: map[string][]byte{}}
}

// scribble changes some pages.
func (s *subject) scribble(r *rand.Rand) {
	for range r.IntN(40) {
		at, b := r.IntN(subjectBytes), byte(r.IntN(3))
		s.memory.Bytes()[at], s.now[at] = b, b
	}
}

func (s *subject) keep(t *testing.T, name string) {
	t.Helper()
	if err := s.capture(s.memory, nil, wasi.State{}, 0); err != nil {
		t.Fatal(err)
	}
	s.name(name)
	s.was[name] = bytes.Clone(s.now)
}

func (s *subject) check(t *testing.T, what string) {
	t.Helper()
	if !bytes.Equal(s.memory.Bytes(), s.now) {
		t.Fatalf("%s is not what it was", what)
	}
}

// Whatever is kept, gone back to, forked and dropped in whatever order: each
// memory is what it was, and in the end no page is left.
func TestWhatWasKeptIsWhatItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	p := newPages()
	p.most = 300
	var all []*subject
	for n := range 3000 {
		if len(all) == 0 || len(all) < 4 && r.IntN(20) == 0 {
			all = append(all, newSubject(t, p))
		}
		which := r.IntN(len(all))
		s := all[which]
		name := fmt.Sprint(r.IntN(n + 1))
		if len(s.marks) > 0 && r.IntN(4) > 0 {
			name = s.marks[r.IntN(len(s.marks))].name
		}
		switch r.IntN(8) {
		case 0, 1, 2:
			s.scribble(r)
		case 3, 4:
			s.keep(t, fmt.Sprint(n))
			if len(s.marks) > mostMarks {
				t.Fatalf("it has %d marks", len(s.marks))
			}
		case 5:
			if m := s.find(name); m != nil {
				if !s.restoreTo(m, s.memory, nil) {
					t.Fatal("it does not go back")
				}
				s.begin(m)
				s.now = bytes.Clone(s.was[name])
			}
		case 6:
			if m := s.find(name); m != nil {
				fork := newSubject(t, p)
				fork.begin(m)
				if err := fork.restore(fork.memory); err != nil {
					t.Fatal(err)
				}
				fork.now = bytes.Clone(s.was[name])
				fork.check(t, "a fork")
				if len(all) < 6 {
					all = append(all, fork)
				} else {
					fork.drop()
				}
			}
		case 7:
			if r.IntN(4) == 0 {
				s.drop()
				all = append(all[:which:which], all[which+1:]...)
			}
		}
		s.check(t, "a memory")
	}
	for _, s := range all {
		s.drop()
	}
	if p.used != 0 || p.newest != 0 || p.marks.Len() != 0 {
		t.Errorf("%d pages are used, %d of newest moments, by %d marks", p.used, p.newest, p.marks.Len())
	}
	for _, s := range (*p.slabs.Load())[1:] {
		if s != nil {
			t.Error("a slab is held for nothing")
		}
	}
}

// The same for a memory of many pages, of which few change.
func TestALargeMemoryGoesBackAndForth(t *testing.T) {
	linear.Prepare()
	s := newSized(t, newPages(), largeBytes)
	fillPages(s, 1)
	s.keep(t, "0")
	for n := 1; n < 6; n++ {
		for i := range 10 {
			at := (n*i*977 + n) % largeBytes
			s.memory.Bytes()[at], s.now[at] = byte(n+1), byte(n+1)
		}
		s.keep(t, fmt.Sprint(n))
	}
	for _, name := range []string{"3", "0", "5", "5", "1"} {
		s.memory.Bytes()[12345] = 77
		m := s.find(name)
		if m == nil || !s.restoreTo(m, s.memory, nil) {
			t.Fatal("it does not go back")
		}
		s.begin(m)
		s.now = bytes.Clone(s.was[name])
		s.check(t, "the memory at "+name)
	}
	s.drop()
	if s.pages.used != 0 {
		t.Errorf("%d pages are left", s.pages.used)
	}
}

// And for one of which all changed: what it is afterwards is kept as well.
func TestWhatIsWrittenAfterALargeStepBackIsKept(t *testing.T) {
	linear.Prepare()
	s := newSized(t, newPages(), largeBytes)
	for n := range 3 {
		fillPages(s, byte(n+1))
		s.keep(t, fmt.Sprint(n))
	}
	for n, name := range []string{"0", "2", "1", "a", "2", "b"} {
		m := s.find(name)
		if m == nil || !s.restoreTo(m, s.memory, nil) {
			t.Fatal("it does not go back")
		}
		s.begin(m)
		s.now = bytes.Clone(s.was[name])
		s.check(t, "the memory at "+name)
		at := n * 5 * linear.PageSize
		s.memory.Bytes()[at], s.now[at] = 'x', 'x'
		s.keep(t, string(rune('a'+n)))
	}
	s.drop()
	if s.pages.used != 0 {
		t.Errorf("%d pages are left", s.pages.used)
	}
}

func fillPages(s *subject, b byte) {
	for i := range s.now {
		s.memory.Bytes()[i], s.now[i] = b, b
	}
}

// One that changes all that there may be can still go back once.
func TestTheOldestGoesFirst(t *testing.T) {
	p := newPages()
	p.most = subjectBytes / linear.PageSize * 2
	a, b := newSubject(t, p), newSubject(t, p)
	has := func(s *subject, name string) bool {
		m := s.find(name)
		if m == nil {
			return false
		}
		s.release(m)
		return true
	}
	for n := range byte(3) {
		fillPages(a, n+1)
		a.keep(t, fmt.Sprint("a", n))
		fillPages(b, n+1)
		b.keep(t, fmt.Sprint("b", n))
	}
	for _, c := range []struct {
		s    *subject
		name string
		want bool
	}{{a, "a0", false}, {b, "b0", false}, {a, "a1", true}, {b, "b1", true}, {a, "a2", true}, {b, "b2", true}} {
		if has(c.s, c.name) != c.want {
			t.Errorf("%s is there: %v", c.name, !c.want)
		}
	}
	p.most = 0
	fillPages(a, 9)
	a.keep(t, "a3")
	if !has(a, "a3") || has(a, "a1") || has(b, "b1") {
		t.Error("with no room at all the newest stays, and nothing else")
	}
	a.drop()
	b.drop()
}

func TestANameIsOfTheLatest(t *testing.T) {
	s := newSubject(t, newPages())
	fillPages(s, 1)
	s.keep(t, "m")
	fillPages(s, 2)
	s.keep(t, "m")
	fillPages(s, 3)
	m := s.find("m")
	if m == nil || !s.restoreTo(m, s.memory, nil) || s.memory.Bytes()[0] != 2 || len(s.marks) != 1 {
		t.Error("it is not")
	}
	s.begin(m)
	s.drop()
	if s.pages.used != 0 {
		t.Errorf("%d pages are left", s.pages.used)
	}
}

// A page that was changed and changed back is none that changed, and the moment
// is the same.
func TestWhatDidNotChangeIsTheSameMoment(t *testing.T) {
	s := newSubject(t, newPages())
	fillPages(s, 1)
	s.keep(t, "a")
	first := s.newest.id
	fillPages(s, 2)
	fillPages(s, 1)
	s.keep(t, "b")
	if s.newest.id != first || s.pages.used != subjectBytes/linear.PageSize {
		t.Errorf("it is another, with %d pages", s.pages.used)
	}
	s.memory.Page(3)[5] = 7
	s.keep(t, "c")
	if s.newest.id == first || s.pages.used != subjectBytes/linear.PageSize+1 {
		t.Errorf("it is the same, with %d pages", s.pages.used)
	}
	s.drop()
}

// A memory of which much changes again and again, and then little: what is hot is
// not marked, and whatever was gone back to is what it was.
func TestAMemoryOfWhichMuchChangesGoesBackAndForth(t *testing.T) {
	linear.Prepare()
	r := rand.New(rand.NewPCG(3, 4))
	s := newSized(t, newPages(), largeBytes)
	heats, cools := 0, 0
	for n := range 60 {
		was := len(s.hot)
		switch {
		case n%20 < 10: // all but something at both ends
			from, to := r.IntN(1<<20), largeBytes-r.IntN(1<<20)
			for at := from; at < to; at += linear.PageSize {
				s.memory.Bytes()[at], s.now[at] = byte(n+1), byte(n+1)
			}
		default:
			for range 20 {
				at := r.IntN(largeBytes)
				s.memory.Bytes()[at], s.now[at] = byte(n+1), byte(n+1)
			}
		}
		if n == 0 || r.IntN(3) > 0 {
			s.keep(t, fmt.Sprint(n))
		}
		if len(s.hot) > was {
			heats++
		} else if len(s.hot) < was {
			cools++
		}
		if r.IntN(2) == 0 {
			name := s.marks[r.IntN(len(s.marks))].name
			m := s.find(name)
			if !s.restoreTo(m, s.memory, nil) {
				t.Fatal("it does not go back")
			}
			s.begin(m)
			s.now = bytes.Clone(s.was[name])
		}
		s.check(t, fmt.Sprint("the memory in round ", n))
	}
	if heats == 0 || cools == 0 {
		t.Errorf("pages became hot %d times, and cool %d times", heats, cools)
	}
	s.drop()
}

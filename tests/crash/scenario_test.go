package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// scenario is everything that the tests have done and were answered.
type scenario struct {
	*place
	actors []*actor
	ops    atomic.Int64 // names for operations
	// tolerant is set where workers are killed: calls may fail then, and are like
	// those that were not answered.
	tolerant atomic.Bool

	mu       sync.Mutex // guards what follows
	doing    string     // the round, for reports
	drawn    map[string]string
	failures int
	counts   map[string]int // of operations that were answered, and of what else happened
}

func newScenario(p *place) *scenario {
	return &scenario{place: p, drawn: map[string]string{}, counts: map[string]int{}}
}

func (w *scenario) op() int { return int(w.ops.Add(1)) }

// say begins a part of the test.
func (w *scenario) say(doing string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing = doing
}

func (w *scenario) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// mostFailures is after how many it is given up.
const mostFailures = 10

// fail reports something that is not as it has to be.
func (w *scenario) fail(format string, args ...any) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failures++; w.failures == 1 { // with -artifacts it stays
		if err := os.CopyFS(filepath.Join(w.t.ArtifactDir(), "state"), os.DirFS(w.state)); err != nil {
			w.t.Logf("the state is not copied whole: %v", err)
		}
	}
	if w.failures <= mostFailures {
		w.t.Errorf("%s: %s", w.doing, fmt.Sprintf(format, args...))
	}
}

func (w *scenario) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures >= mostFailures
}

// draw takes random numbers that a session gave: nobody may have got them
// before.
func (w *scenario) draw(who string, numbers []string) {
	w.mu.Lock()
	was := ""
	number := ""
	for _, n := range numbers {
		if other, there := w.drawn[n]; there {
			was, number = other, n
		}
		w.drawn[n] = who
	}
	w.mu.Unlock()
	if was != "" {
		w.fail("%s drew %s, which %s had drawn before", who, number, was)
	}
}

// session is one of them, and what it may hold.
type session struct {
	id string
	// may are the states of which it has one, nil being that it is not there; just
	// one where everything was answered.
	may    []*state
	labels map[string]*state // checkpoints that were acknowledged
	points map[string]*state // what is known of checkpoints by their numbers
}

func newSession(id string, may ...*state) *session {
	return &session{id: id, may: may, labels: map[string]*state{}, points: map[string]*state{}}
}

// known is the state of a session that is in one; nil: it may be in several.
func (s *session) known() *state {
	if len(s.may) != 1 {
		return nil
	}
	return s.may[0]
}

func (s *session) mayBeGone() bool { return slices.Contains(s.may, nil) }

// maybe says that something may have been done to a session, in whatever state
// it was.
func (s *session) maybe(do func(*state)) {
	for _, one := range slices.Clone(s.may) {
		if one != nil {
			s.may = append(s.may, one.after(do))
		}
	}
}

// done says that something was.
func (s *session) done(do func(*state)) {
	for k, one := range s.may {
		if one != nil {
			s.may[k] = one.after(do)
		}
	}
}

// forking is a fork that was not answered.
type forking struct {
	state *state
	count int
}

// actor plays with sessions that are its alone. Their names are its own, and
// forks inherit them.
type actor struct {
	w        *scenario
	name     string
	rng      *rand.Rand
	sessions []*session
	gone     []string // that were destroyed, for sure
	forking  *forking
}

func (a *actor) forget(s *session) {
	a.sessions = slices.DeleteFunc(a.sessions, func(other *session) bool { return other == s })
	a.gone = append(a.gone, s.id)
}

// settle compares the sessions that there are with those that there may be.
// Nobody works meanwhile.
func (w *scenario) settle() {
	all, err := w.list()
	if err != nil {
		w.fail("listing the sessions: %v", err)
		return
	}
	there := map[string]listed{}
	for _, one := range all {
		there[one.ID] = one
	}
	for _, a := range w.actors {
		for _, s := range slices.Clone(a.sessions) {
			_, exists := there[s.id]
			delete(there, s.id)
			switch {
			case exists:
				s.may = slices.DeleteFunc(s.may, func(one *state) bool { return one == nil })
			case s.mayBeGone():
				a.forget(s)
			default:
				w.fail("the session %s is gone, which nobody destroyed", s.id)
				a.forget(s)
			}
		}
		a.adopt(there)
	}
	for id, one := range there {
		was := "nobody made it"
		for _, a := range w.actors {
			if slices.Contains(a.gone, id) {
				was = "it was destroyed"
			}
		}
		w.fail("there is a session %s called %q: %s", id, one.Name, was)
		if out, err := w.do("session", "rm", id); err != nil {
			w.fail("removing it: %v %s", err, out)
		}
	}
}

// adopt takes the forks that were made without an answer: all or none.
func (a *actor) adopt(there map[string]listed) {
	var mine []string
	for id, one := range there {
		if one.Name == a.name && !slices.Contains(a.gone, id) {
			mine = append(mine, id)
		}
	}
	f := a.forking
	a.forking = nil
	if f == nil {
		return
	}
	slices.Sort(mine)
	if len(mine) != 0 && len(mine) != f.count {
		a.w.fail("of %d forks that were asked for there are %d", f.count, len(mine))
	}
	for _, id := range mine {
		a.sessions = append(a.sessions, newSession(id, f.state.clone()))
		delete(there, id)
	}
}

// summary is what was done, for the log.
func (w *scenario) summary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, w.counts[what]))
	}
	return strings.Join(parts, ", ")
}

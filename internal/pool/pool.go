// Package pool keeps machines booted for sessions that will be made.
//
// What it has ready are slots: a machine with an interpreter in which nothing has run,
// upon empty folders of its own, that uses no processor until somebody has it. How
// many there are of which kind follows what was asked for lately. A slot is taken by
// one session at most, or ended; what a session leaves comes never back.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// How a pool follows what is asked for.
const (
	// lately is how long a session that was made counts as one more that may come:
	// so many machines are kept ready for the next ones.
	lately = 10 * time.Minute
	// forgets is how long after the last session a machine is kept ready.
	forgets = 30 * time.Minute
	// quiet is how long no session may have begun, or booted a machine of its own,
	// before one is booted ahead; timeout how long that is waited for at most.
	quiet, timeout = 100 * time.Millisecond, 5 * time.Second
	// retry is when to try again what did not boot, or had no memory; later after
	// each further time.
	retry = time.Minute
	// lookEvery is how often it is looked which slots are wanted, and live.
	lookEvery = time.Minute
	// mostKinds bounds the kinds of machines that are remembered.
	mostKinds = 32
	// slotMemory is what a machine counts until it has booted, in bytes.
	slotMemory = 32 << 20
)

// Config sets a Pool up. All of it is needed.
type Config struct {
	// Most is how many machines are kept booted at most.
	Most int
	// Dir has a folder for each process that keeps machines ready, locked by it. It is
	// made when the first one is needed, on the disk where sessions' folders are.
	Dir string
	// Runtime gives the one that runs a language; "" stands for the first.
	Runtime func(ctx context.Context, b sandbox.Backend, language string) (sandbox.Runtime, error)
	// Start is a Backend's, End an Instance's Close.
	Start func(ctx context.Context, b sandbox.Backend, spec sandbox.Spec) (sandbox.Instance, error)
	End   func(sandbox.Instance) error
	// Grow lets a slot take so much memory, in bytes, if there is so much; Set notes
	// what it takes, zero: it is gone. Slots go by the names of their boxes.
	Grow func(box string, bytes int64) bool
	Set  func(box string, bytes int64)
	Log  *slog.Logger
}

// Want is the machine that a new session wants.
type Want struct {
	Backend sandbox.Backend
	// Spec is that of an interpreter of the session, in a box that has no other mounts
	// than the session's own folders. Who its owner is, what box and runtime, and
	// where the folders are, does not count.
	Spec sandbox.Spec
	// UID and GID are whose the folders are; zeros: ours.
	UID, GID int
	// Language is that of the interpreter; empty: the backend's first.
	Language string
	// Special says that somebody asked for something: once is not often.
	Special bool
	// Own names the owner whose alone such machines are, as others must not find out
	// by how long theirs take what is in them; empty: they are anybody's.
	Own string
}

// Pool keeps slots ready while it runs. The nil Pool keeps none, and nobody has to
// know. It is safe for concurrent use.
type Pool struct {
	config Config
	wake   chan struct{} // holds a token when something has changed

	mu     sync.Mutex // guards what follows
	kinds  map[string]*kind
	known  map[string]string // runtimes by isolation and language, as far as something was booted
	busy   time.Time         // when a session last began, or had its machine
	boots  int               // sessions that boot a machine of their own just now
	closed bool
	hits   int64 // sessions that got a slot
	misses int64 // those that could have
}

// kind is one sort of machine, and how much it is in demand.
type kind struct {
	want     Want        // its Spec without folders' places and runtime
	machine  string      // what is the same in kinds that differ in language alone
	asked    []time.Time // the last times, the oldest first
	ready    []*Slot     // likewise
	notYet   time.Time   // before when none is booted
	failures int         // to boot one, in a row
	stale    bool        // what is ready is not what would be booted now
}

// New makes a Pool that has nothing ready, until it runs.
func New(c Config) *Pool {
	return &Pool{config: c, wake: make(chan struct{}, 1), kinds: map[string]*kind{}, known: map[string]string{}, busy: time.Now()}
}

// Expect has the pool keep a machine ready as if somebody had asked for it just now.
func (p *Pool) Expect(w Want) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kindLocked(w); k != nil {
		k.asked = append(k.asked, time.Now())
		p.signal()
	}
}

// kindLocked gives the kind of what is wanted; nil where none can be kept ready.
func (p *Pool) kindLocked(w Want) *kind {
	if _, ok := w.Backend.(sandbox.Adopter); !ok {
		return nil
	}
	w.Spec = anybodys(w.Spec)
	s := &w.Spec
	// fmt prints maps in the order of their keys.
	machine := fmt.Sprintf("%q %q %q", w.Backend.Name(), w.Own, fmt.Sprint(s.Image, s.CPUs, s.Limits, s.Env, s.Mounts, s.Proxy != nil))
	name := p.nameLocked(w.Backend.Name(), w.Language, machine)
	if p.kinds[name] == nil {
		p.forgetLocked()
		p.kinds[name] = &kind{want: w, machine: machine}
	}
	return p.kinds[name]
}

// anybodys is a Spec without what is one session's alone. What runs in a slot before that
// is somebody's, such as what its image starts, is not connected to anything.
func anybodys(spec sandbox.Spec) sandbox.Spec {
	spec.Owner, spec.Box, spec.Runtime, spec.Snapshots = "", "", "", false
	spec.Env, spec.Mounts = maps.Clone(spec.Env), slices.Clone(spec.Mounts)
	if spec.Proxy != nil {
		spec.Proxy = func(context.Context, net.Conn) {}
	}
	for n := range spec.Mounts {
		spec.Mounts[n].Host = filepath.Base(spec.Mounts[n].Host)
	}
	return spec
}

// forgetLocked makes room for one more kind: of those that have nothing ready the
// one goes that was asked for longest ago.
func (p *Pool) forgetLocked() {
	if len(p.kinds) < mostKinds {
		return
	}
	oldest := ""
	for name, k := range p.kinds {
		if len(k.ready) == 0 && (oldest == "" || k.last().Before(p.kinds[oldest].last())) {
			oldest = name
		}
	}
	delete(p.kinds, oldest)
}

func (k *kind) last() time.Time {
	if len(k.asked) == 0 {
		return time.Time{}
	}
	return k.asked[len(k.asked)-1]
}

// wanted is how many slots there should be.
func (k *kind) wanted(now time.Time) int {
	recent, atAll := 0, 0
	for _, at := range k.asked {
		if now.Sub(at) < lately {
			recent++
		}
		if now.Sub(at) < forgets {
			atAll++
		}
	}
	if atAll == 0 || k.want.Special && atAll == 1 {
		return 0
	}
	return max(recent-1, 1)
}

// Take gives a slot for a new session, and sees to it that there will be another one
// for the next; nil: there is none. Its interpreter may be of another language.
func (p *Pool) Take(w Want) *Slot {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	k := p.kindLocked(w)
	if k == nil {
		return nil
	}
	defer p.signal()
	p.busy = time.Now()
	k.asked = append(k.asked[max(0, len(k.asked)-p.config.Most):], p.busy)
	from := k
	if len(k.ready) == 0 { // a machine with another language's interpreter is better than none
		for _, other := range p.kinds {
			if other.machine == k.machine && len(other.ready) > 0 {
				from = other
			}
		}
	}
	for n, sl := range from.ready {
		if !sl.ended() {
			from.ready = slices.Delete(from.ready, n, n+1)
			p.hits++
			return sl
		}
	}
	p.misses++
	return nil
}

// Starting has the pool wait with its own machines until done is called: a session
// begins one.
func (p *Pool) Starting() (done func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boots++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.boots--
		p.busy = time.Now()
	}
}

// GiveUp ends a slot because its memory is needed, and tells whether there was one.
func (p *Pool) GiveUp() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	var from *kind
	for _, k := range p.kinds {
		if k.notYet = time.Now().Add(retry); len(k.ready) > 0 && (from == nil || k.last().Before(from.last())) {
			from = k
		}
	}
	var sl *Slot
	if from != nil {
		sl, from.ready = from.ready[0], from.ready[1:]
	}
	p.mu.Unlock()
	if sl == nil {
		return false
	}
	sl.Discard()
	return true
}

// renew has the slots replaced that are like one that could not be used.
func (p *Pool) renew(machine string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		k.stale = k.stale || k.machine == machine
	}
	p.signal()
}

// Counts tells how many slots are ready, and how many sessions have got one or could
// have.
func (p *Pool) Counts() (ready int, hits, misses int64) {
	if p == nil {
		return 0, 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		ready += len(k.ready)
	}
	return ready, p.hits, p.misses
}

func (p *Pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// look finds the slots that are not wanted, and a kind that lacks one; nil: none
// does. next is when it should be looked again then.
func (p *Pool) look(now time.Time) (surplus []*Slot, missing *kind, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.SortedFunc(maps.Values(p.kinds), func(a, b *kind) int { return b.last().Compare(a.last()) })
	room, next := p.config.Most, time.Hour
	for _, k := range all {
		want := min(k.wanted(now), room)
		room -= want
		k.ready = slices.DeleteFunc(k.ready, func(sl *Slot) bool {
			ended := k.stale || sl.ended()
			if ended {
				surplus = append(surplus, sl)
			}
			return ended
		})
		k.stale = false
		if more := len(k.ready) - want; more > 0 {
			surplus = append(surplus, k.ready[:more]...)
			k.ready = slices.Delete(k.ready, 0, more)
		}
		switch {
		case len(k.ready) >= want:
		case now.Before(k.notYet):
			next = min(next, k.notYet.Sub(now))
		case missing == nil:
			missing = k
		}
		if want > 0 {
			next = min(next, lookEvery)
		}
	}
	return surplus, missing, next
}

// pause is how long to leave the processors to sessions that begin, where a slot
// has been missing since.
func (p *Pool) pause(now, since time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := quiet - now.Sub(p.busy)
	if p.boots > 0 {
		left = quiet
	}
	return min(left, timeout-now.Sub(since))
}

// fill boots one slot in a new folder.
func (p *Pool) fill(ctx context.Context, k *kind, dir string) {
	c := &p.config
	sl := &Slot{pool: p, backend: k.want.Backend.(sandbox.Adopter), machine: k.machine, dir: dir, spec: k.want.Spec}
	sl.spec.Box = filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir) // also where pools share a backend
	err := errNoRoom
	if c.Grow(sl.spec.Box, slotMemory) {
		if sl.runtime, err = c.Runtime(ctx, k.want.Backend, k.want.Language); err == nil {
			sl.spec.Runtime = sl.runtime.Name
			err = sl.boot(ctx, k.want)
		}
	}
	p.mu.Lock()
	if err == nil && !p.closed {
		k.notYet, k.failures = time.Time{}, 0
		p.settleLocked(k, sl)
		p.mu.Unlock()
		return
	}
	k.notYet = time.Now().Add(retry << min(k.failures, 5))
	k.failures++
	p.mu.Unlock()
	if err == nil {
		sl.Discard()
		return
	}
	c.Set(sl.spec.Box, 0)
	if ctx.Err() == nil {
		c.Log.Info("no machine could be booted ahead", "isolation", k.want.Backend.Name(), "cause", fault.CauseOf(err))
	}
}

var errNoRoom = errors.New("the sessions need the memory")

// settleLocked has a kind have one more slot. What runs its language is known now, so
// all kinds are one that have the same runtime in the same machine.
func (p *Pool) settleLocked(k *kind, sl *Slot) {
	isolation := k.want.Backend.Name()
	for _, language := range sl.runtime.Languages {
		p.known[isolation+" "+language] = sl.runtime.Name
	}
	p.known[isolation+" "+k.want.Language] = sl.runtime.Name
	k.ready = append(k.ready, sl)
	was := p.kinds
	if !slices.Contains(slices.Collect(maps.Values(was)), k) {
		was[""] = k // it was forgotten meanwhile
	}
	p.kinds = map[string]*kind{}
	for _, one := range was {
		name := p.nameLocked(one.want.Backend.Name(), one.want.Language, one.machine)
		there := p.kinds[name]
		if there == nil {
			p.kinds[name] = one
			continue
		}
		there.asked, there.ready = append(there.asked, one.asked...), append(there.ready, one.ready...)
		slices.SortFunc(there.asked, time.Time.Compare)
	}
}

// nameLocked is what a kind is called: the same for all languages of a runtime, once
// that is known.
func (p *Pool) nameLocked(isolation, language, machine string) string {
	return cmp.Or(p.known[isolation+" "+language], language) + " " + machine
}

package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"paddock/internal/quota"
	"paddock/internal/sandbox"
)

// How a pool follows what is asked for.
const (
	// poolLately is how long a session that was made counts as one more that may
	// come: so many machines are kept ready for the next ones.
	poolLately = 10 * time.Minute
	// poolForgets is how long after the last session a machine is kept ready.
	poolForgets = 30 * time.Minute
	// poolPause is how long no session may have begun, or booted a machine of its
	// own, before one is booted ahead; poolPatience how long that is waited for at
	// most.
	poolPause, poolPatience = 100 * time.Millisecond, 5 * time.Second
	// poolRetry is when to try again what did not boot, or had no memory; later
	// after each further time.
	poolRetry = time.Minute
	// poolLook is how often it is looked which slots are wanted, and live.
	poolLook = time.Minute
	// mostKinds bounds the kinds of machines that are remembered.
	mostKinds = 32
	// slotMemory is what a machine counts until it has booted, in bytes.
	slotMemory = 32 << 20
)

// pool keeps machines booted for sessions that will be made. The nil pool keeps
// none. A machine is one session's at most, and what a session leaves is ended.
type pool struct {
	m    *Manager
	most int
	wake chan struct{} // holds a token when something has changed

	mu     sync.Mutex // guards what follows
	kinds  map[string]*slotKind
	known  map[string]string // runtimes by isolation and language, as far as something was booted
	busy   time.Time         // when a session last began, or had its machine
	boots  int               // sessions that boot a machine of their own just now
	closed bool
	hits   int64 // sessions that got a slot
	misses int64 // those that could have
}

// slotKind is one sort of machine, and how much it is in demand.
type slotKind struct {
	backend  sandbox.Backend
	spec     sandbox.Spec // without folders' places and runtime
	machine  string       // what is the same in kinds that differ in language alone
	language string       // "": the default one
	special  bool         // somebody asked for something: once is not often
	asked    []time.Time  // the last times, the oldest first
	ready    []*slot      // likewise
	notYet   time.Time    // before when none is booted
	failures int          // to boot one, in a row
	stale    bool         // what is ready is not what would be booted now
}

// newPool makes a Manager's, and expects sessions like the default.
func newPool(m *Manager) *pool {
	if m.config.Pool <= 0 {
		return nil
	}
	p := &pool{m: m, most: m.config.Pool, wake: make(chan struct{}, 1), kinds: map[string]*slotKind{}, known: map[string]string{}, busy: time.Now()}
	s := newSession(m, key{})
	s.backend, s.record.Isolation = m.config.Backends[0], m.config.Backends[0].Name()
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kindLocked(s); k != nil {
		k.asked = []time.Time{time.Now()}
	}
	return p
}

// kindLocked gives the one that a new session wants; nil where none can be kept
// ready.
func (p *pool) kindLocked(s *session) *slotKind {
	if _, ok := s.backend.(sandbox.Adopter); !ok {
		return nil
	}
	spec, machine, ok := s.kindOf()
	if !ok {
		return nil
	}
	language := s.language()
	name := p.nameLocked(s.backend.Name(), language, machine)
	if p.kinds[name] == nil {
		p.forgetLocked()
		set := &s.record.Settings
		p.kinds[name] = &slotKind{backend: s.backend, spec: spec, machine: machine, language: language, special: set.Machine != nil || set.MemoryBytes > 0}
	}
	return p.kinds[name]
}

// forgetLocked makes room for one more kind: of those that have nothing ready the
// one goes that was asked for longest ago.
func (p *pool) forgetLocked() {
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

func (k *slotKind) last() time.Time { return k.asked[len(k.asked)-1] }

// want is how many slots there should be.
func (k *slotKind) want(now time.Time) int {
	lately, atAll := 0, 0
	for _, at := range k.asked {
		if now.Sub(at) < poolLately {
			lately++
		}
		if now.Sub(at) < poolForgets {
			atAll++
		}
	}
	if atAll == 0 || k.special && atAll == 1 {
		return 0
	}
	return max(lately-1, 1)
}

// take gives a slot for a new session, and sees to it that there will be another one
// for the next; nil: there is none.
func (p *pool) take(s *session) *slot {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	k := p.kindLocked(s)
	if k == nil {
		return nil
	}
	defer p.signal()
	p.busy = time.Now()
	k.asked = append(k.asked[max(0, len(k.asked)-p.most):], p.busy)
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

// starting has the pool wait with its own machines until done is called: a session
// begins one.
func (p *pool) starting() (done func()) {
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

// giveUp ends a slot because its memory is needed, and tells whether there was one.
func (p *pool) giveUp() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	var from *slotKind
	for _, k := range p.kinds {
		if k.notYet = time.Now().Add(poolRetry); len(k.ready) > 0 && (from == nil || k.last().Before(from.last())) {
			from = k
		}
	}
	var sl *slot
	if from != nil {
		sl, from.ready = from.ready[0], from.ready[1:]
	}
	p.mu.Unlock()
	if sl == nil {
		return false
	}
	sl.discard()
	return true
}

// renew has the slots replaced that are like one that could not be used.
func (p *pool) renew(like *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		k.stale = k.stale || k.machine == like.machine
	}
	p.signal()
}

// counts tells how many slots are ready, and how many sessions have got one or
// could have.
func (p *pool) counts() (ready int, hits, misses int64) {
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

func (p *pool) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run keeps slots ready until ctx ends; then it ends them, and waits.
func (p *pool) run(ctx context.Context) {
	f := filler{pool: p}
	defer f.end()
	for {
		next, err := f.step(ctx)
		if err != nil {
			p.m.log.Warn("no machines can be kept ready", "cause", causeOf(err))
			return
		}
		rest := time.NewTimer(next)
		select {
		case <-rest.C:
		case <-p.wake:
			rest.Stop()
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}

// filler does a pool's work, one slot after the other.
type filler struct {
	pool   *pool
	dir    string // of the slots; "": none was needed yet
	unlock func()
	last   int       // the slot's number
	since  time.Time // when one was found to be missing; zero: none is
}

// step ends what is not wanted, boots what is, and gives the time until it should
// look again.
func (f *filler) step(ctx context.Context) (time.Duration, error) {
	p := f.pool
	for ctx.Err() == nil {
		surplus, missing, next := p.look(time.Now())
		for _, sl := range surplus {
			sl.discard()
		}
		if missing == nil {
			f.since = time.Time{}
			return next, nil
		}
		now := time.Now()
		if f.since.IsZero() {
			f.since = now
		}
		if wait := p.pause(now, f.since); wait > 0 {
			return wait, nil
		}
		if f.dir == "" {
			var err error
			if f.dir, f.unlock, err = p.m.openPool(); err != nil {
				return 0, err
			}
		}
		f.last++
		f.since = time.Time{}
		p.fill(ctx, missing, filepath.Join(f.dir, strconv.Itoa(f.last)))
	}
	return 0, nil
}

// end ends all slots, and gives no more.
func (f *filler) end() {
	p := f.pool
	p.mu.Lock()
	p.closed = true
	var all []*slot
	for _, k := range p.kinds {
		all, k.ready = append(all, k.ready...), nil
	}
	p.mu.Unlock()
	var ends sync.WaitGroup
	for _, sl := range all {
		ends.Go(sl.discard)
	}
	ends.Wait()
	if f.dir == "" {
		return
	}
	if err := removeFolder(f.dir, f.unlock); err != nil {
		p.m.log.Warn("the folder of machines that were kept ready cannot be removed", "cause", err)
	}
}

// look finds the slots that are not wanted, and a kind that lacks one; nil: none
// does. next is when it should be looked again then.
func (p *pool) look(now time.Time) (surplus []*slot, missing *slotKind, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.SortedFunc(maps.Values(p.kinds), func(a, b *slotKind) int { return b.last().Compare(a.last()) })
	room, next := p.most, time.Hour
	for _, k := range all {
		want := min(k.want(now), room)
		room -= want
		k.ready = slices.DeleteFunc(k.ready, func(sl *slot) bool {
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
			next = min(next, poolLook)
		}
	}
	return surplus, missing, next
}

// pause is how long to leave the processors to sessions that begin, where a slot
// has been missing since.
func (p *pool) pause(now, since time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := poolPause - now.Sub(p.busy)
	if p.boots > 0 {
		left = poolPause
	}
	return min(left, poolPatience-now.Sub(since))
}

// fill boots one slot in a new folder.
func (p *pool) fill(ctx context.Context, k *slotKind, dir string) {
	m := p.m
	sl := &slot{manager: m, backend: k.backend.(sandbox.Adopter), machine: k.machine, dir: dir, spec: k.spec}
	sl.spec.Box = filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir) // also where Managers share a backend
	sl.holder = quota.Holder{Owner: string(poolOwner), Session: sl.spec.Box}
	err := errNoRoom
	if _, ok := m.memory.Grow(sl.holder, slotMemory, m.config.TotalMemoryBytes, m.config.TotalMemoryBytes); ok {
		if sl.runtime, err = m.runtimeFor(ctx, k.backend, k.language); err == nil {
			sl.spec.Runtime = sl.runtime.Name
			err = sl.boot(ctx, k.backend)
		}
	}
	p.mu.Lock()
	if err == nil && !p.closed {
		k.notYet, k.failures = time.Time{}, 0
		p.settleLocked(k, sl)
		p.mu.Unlock()
		return
	}
	k.notYet = time.Now().Add(poolRetry << min(k.failures, 5))
	k.failures++
	p.mu.Unlock()
	if err == nil {
		sl.discard()
		return
	}
	m.memory.Set(sl.holder, 0)
	if ctx.Err() == nil {
		m.log.Info("no machine could be booted ahead", "isolation", k.backend.Name(), "cause", causeOf(err))
	}
}

var errNoRoom = errors.New("the sessions need the memory")

// settleLocked has a kind have one more slot. What runs its language is known now, so
// all kinds are one that have the same runtime in the same machine.
func (p *pool) settleLocked(k *slotKind, sl *slot) {
	for _, language := range append(sl.runtime.Languages, k.language) {
		p.known[k.backend.Name()+" "+language] = sl.runtime.Name
	}
	k.ready = append(k.ready, sl)
	was := p.kinds
	if !slices.Contains(slices.Collect(maps.Values(was)), k) {
		was[""] = k // it was forgotten meanwhile
	}
	p.kinds = map[string]*slotKind{}
	for _, one := range was {
		name := p.nameLocked(one.backend.Name(), one.language, one.machine)
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
func (p *pool) nameLocked(isolation, language, machine string) string {
	return cmp.Or(p.known[isolation+" "+language], language) + " " + machine
}

package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"paddock/internal/envd"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// sandbox is one that clients know of. It is safe for concurrent use.
type sandbox struct {
	s       *Server
	id      string
	owner   session.Owner
	session session.ID

	// op is held by who boots, pauses or ends it; it is locked before mu.
	op sync.Mutex

	mu      sync.Mutex // guards what follows
	record  record
	dead    bool
	up      bool   // its machine was booted for E2B's clients, by this process
	release func() // lets its session sleep; nil: it may
	ctx     context.Context
	cut     context.CancelCauseFunc // ends what is under way in it
	traffic int                     // requests under way
	idle    chan struct{}           // closed when there are none; nil: there is no waiter
	samples []sample
}

// errGone is why a request to a sandbox ends that was killed or paused.
var errGone = fault.New(fault.NotFound, "The sandbox was not found")

func newSandbox(s *Server, r record) *sandbox {
	one := &sandbox{s: s, id: r.ID, owner: r.Owner, session: r.Session, record: r}
	one.ctx, one.cut = context.WithCancelCause(context.Background())
	return one
}

func (b *sandbox) isSnapshot() bool { return b.now().Snapshot }

// now is what is known of it.
func (b *sandbox) now() record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record
}

// change changes the record, on disk first.
func (b *sandbox) change(f func(*record)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return errNoSandbox(b.id)
	}
	r := b.record
	f(&r)
	if err := b.s.write(r); err != nil {
		return err
	}
	b.record = r
	b.s.deadlineChanged()
	return nil
}

// enter begins a request to the sandbox, whose context ends with it; an error says that it
// cannot be reached.
func (b *sandbox) enter(parent context.Context) (ctx context.Context, leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead || b.record.Paused {
		return nil, nil, errGone
	}
	b.traffic++
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(b.ctx, func() { cancel(errGone) })
	return ctx, sync.OnceFunc(func() {
		stop()
		cancel(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.traffic--; b.traffic == 0 && b.idle != nil {
			close(b.idle)
			b.idle = nil
		}
	}), nil
}

// stopTraffic ends what is under way in the sandbox, and waits.
func (b *sandbox) stopTraffic() {
	b.mu.Lock()
	b.cut(errGone)
	b.ctx, b.cut = context.WithCancelCause(context.Background())
	var idle chan struct{}
	if b.traffic > 0 {
		if b.idle == nil {
			b.idle = make(chan struct{})
		}
		idle = b.idle
	}
	b.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// letGo lets its session sleep.
func (b *sandbox) letGo() {
	b.mu.Lock()
	release := b.release
	b.release, b.up = nil, false
	b.mu.Unlock()
	if release != nil {
		release()
	}
}

// boot has the machine be up: a new one, or that which was saved. One that was paused
// meanwhile stays so.
func (b *sandbox) boot(ctx context.Context) error {
	b.op.Lock()
	defer b.op.Unlock()
	if b.now().Paused {
		return errGone
	}
	return b.bootLocked(ctx)
}

func (b *sandbox) bootLocked(ctx context.Context) error {
	b.mu.Lock()
	up, dead := b.up, b.dead
	b.mu.Unlock()
	switch {
	case dead:
		return errNoSandbox(b.id)
	case up:
		return nil
	}
	release, err := b.s.config.Sessions.Keep(b.owner, b.session)
	if err == nil {
		if err = b.s.config.Sessions.Boot(ctx, b.owner, b.session); err == nil {
			err = b.sendSetup(ctx)
		}
		if err != nil {
			release()
		}
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.up, b.release = true, release
	b.mu.Unlock()
	return nil
}

// sendSetup tells the daemon in the machine what the sandbox's processes begin with.
func (b *sandbox) sendSetup(ctx context.Context) error {
	text, err := json.Marshal(envd.Setup{Env: b.now().Env})
	if err != nil {
		return err
	}
	conn, err := b.s.dialEnvd(ctx, b)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://envd"+envd.SetupPath, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return fault.New(fault.Unavailable, "the sandbox's daemon does not answer").WithCause(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fault.New(fault.Unavailable, "the sandbox's daemon answers with the status %d", resp.StatusCode)
	}
	return nil
}

// errPaused says that a sandbox is paused already.
func errPaused(id string) error {
	return fault.New(fault.Conflict, "Sandbox %q is already paused", id)
}

// pauseNow saves the sandbox, and stops it: with what runs in it, or only its files where it is
// to boot afresh.
func (b *sandbox) pauseNow(ctx context.Context, cold bool) error {
	b.op.Lock()
	defer b.op.Unlock()
	was := b.now()
	if was.Paused {
		return errPaused(b.id)
	}
	if err := b.change(func(r *record) { r.Paused, r.Cold, r.End = true, cold, time.Now() }); err != nil {
		return err
	}
	b.stopTraffic()
	b.letGo()
	sessions := b.s.config.Sessions
	var err error
	if cold {
		err = sessions.Halt(ctx, b.owner, b.session)
	}
	if err == nil {
		err = sessions.Sleep(b.owner, b.session)
	}
	if err == nil {
		return nil
	}
	if left := b.change(func(r *record) { r.Paused, r.Cold, r.End = false, false, was.End }); left != nil {
		b.s.config.Log.Warn("a sandbox that could not be paused is written down as paused", "sandbox", b.id, "cause", left)
	}
	return fmt.Errorf("pausing the sandbox: %w", err)
}

// resume has a paused sandbox run for so long from now; it reports whether it was paused.
func (b *sandbox) resume(ctx context.Context, timeout time.Duration) (resumed bool, err error) {
	b.op.Lock()
	defer b.op.Unlock()
	paused := b.now().Paused
	if err := b.bootLocked(ctx); err != nil {
		return false, err
	}
	end := time.Now().Add(timeout)
	return paused, b.change(func(r *record) {
		if r.Timeout = timeout; paused || end.After(r.End) {
			r.End = end
		}
		r.Paused, r.Cold = false, false
	})
}

// destroy ends the sandbox for good. From the beginning on it does not exist.
func (b *sandbox) destroy(ctx context.Context) error {
	b.mu.Lock()
	again := b.dead
	b.dead = true
	b.mu.Unlock()
	if again {
		return errNoSandbox(b.id)
	}
	b.s.forget(b.id)
	b.stopTraffic()
	b.op.Lock()
	defer b.op.Unlock()
	b.letGo()
	err := b.s.config.Sessions.Destroy(ctx, b.owner, b.session)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// deadlineChanged has the deadlines be looked at again.
func (s *Server) deadlineChanged() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sampleEvery is how often it is measured what sandboxes use.
const sampleEvery = 5 * time.Second

// keepDeadlines ends or pauses sandboxes whose time is over, until ctx ends.
func (s *Server) keepDeadlines(ctx context.Context) {
	sampled := time.Time{}
	for {
		now, next := time.Now(), time.Hour
		for _, one := range s.list() {
			r := one.now()
			if r.Paused || r.Snapshot {
				continue
			}
			if left := r.End.Sub(now); left > 0 {
				next = min(next, left)
				continue
			}
			s.jobs.Go(func() { one.timeIsOver(ctx) })
		}
		if now.Sub(sampled) >= sampleEvery {
			sampled = now
			s.sampleAll(ctx)
		}
		select {
		case <-time.After(min(next, sampleEvery)):
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// isOverdue reports whether it runs on although its time is over.
func (b *sandbox) isOverdue() bool {
	r := b.now()
	return !r.Paused && !r.Snapshot && !time.Now().Before(r.End)
}

// timeIsOver pauses or ends a sandbox whose deadline has passed, unless it was given more time
// meanwhile.
func (b *sandbox) timeIsOver(ctx context.Context) {
	if !b.isOverdue() {
		return
	}
	r := b.now()
	var err error
	if r.AutoPause {
		err = b.pauseNow(ctx, r.AutoPauseCold)
	} else {
		err = b.destroy(ctx)
	}
	if kind := fault.KindOf(err); err != nil && kind != fault.NotFound && kind != fault.Conflict && ctx.Err() == nil {
		b.s.config.Log.Warn("a sandbox could not be ended at its time", "sandbox", b.id, "cause", fault.CauseOf(err))
	}
}

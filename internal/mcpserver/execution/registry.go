// Package execution takes one program to its end, through all the times that it waits for a
// person. It asks the program's client while its request is answered ([Elicitor]), by rounds
// of requests ([InputResponses]) or as a task ([TaskQuestions]), and goes on when somebody
// has decided, also without a request ([Registry.Resume]).
//
// The Registry holds in memory the executions that were asked about something or go on
// without a request, and what came of them, within bounds. [Tasks] are files. What runs a
// program, and how its result looks, is the caller's ([Program], [Begin]).
//
//   - A [Part] is what came of an execution until now: its output and, in the end, its result.
//   - A [Round] is what a client is asked with one answer of the server.
//   - A [Turn] is what the client's next request says to that.
//
// Locks: an Execution's mu is taken before the Registry's.
package execution

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// ErrDraining is why what runs is stopped when paddock ends.
var ErrDraining = fault.New(fault.Cancelled, "paddock is shutting down")

// Config sets a [Registry] up.
type Config struct {
	// Approvals are the calls that wait for a person; nil: there are none.
	Approvals *approval.Store
	// Waiting gives the runs of an owner (empty: of everybody) that wait.
	Waiting func(session.Owner) ([]session.WaitingRun, error)
	// Unattended gives what goes on with an execution without a request.
	Unattended func(owner session.Owner, id session.ID, execution string) Unattended
	Log        *slog.Logger
}

// Unattended is a Program that goes on without a request.
type Unattended interface {
	Program
	// Ended is told that it has ended or waits again, how long it ran, and why it failed.
	Ended(ctx context.Context, took time.Duration, err error)
}

// Registry are the executions that were asked about something, or go on without a request.
// It is safe for concurrent use.
type Registry struct {
	config   Config
	resuming atomic.Bool // Resume runs

	ctx  context.Context // ends with Close
	stop context.CancelCauseFunc
	jobs sync.WaitGroup // begun with closing held, so that none is after Close

	closing sync.Mutex

	mu   sync.Mutex // guards byID
	byID map[runKey]*Execution
}

// runKey names an execution.
type runKey struct {
	owner     session.Owner
	execution string
}

const (
	// keptRun is how long what came of an execution is kept that went on without a
	// request, for who asks.
	keptRun = time.Hour
	// mostKept bounds how many are, of one owner, and mostOwnBytes how many bytes they
	// hold; mostBytes is what those of all owners hold.
	mostKept     = 64
	mostOwnBytes = 64 << 20
	mostBytes    = 256 << 20
)

// NewRegistry makes one. It ends with Close.
func NewRegistry(config Config) *Registry {
	r := &Registry{config: config}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	return r
}

// Close stops what runs without a request, and waits for it. It works twice.
func (r *Registry) Close() {
	r.closing.Lock()
	r.stop(ErrDraining)
	r.closing.Unlock()
	r.jobs.Wait()
}

// start runs an execution in the background. A Registry that is closed runs none.
func (r *Registry) start(x *Execution, begin Begin) {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.ctx.Err() != nil {
		x.err = ErrDraining
		close(x.done)
		return
	}
	r.jobs.Go(func() {
		defer x.cancel(nil)
		defer context.AfterFunc(r.ctx, func() { x.cancel(context.Cause(r.ctx)) })()
		x.run(begin)
	})
}

// replace makes an execution the one of its name if before is it still.
func (r *Registry) replace(k runKey, before, x *Execution) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[k] != before {
		return false
	}
	r.putLocked(k, x)
	return true
}

// enter makes an execution the one of its name.
func (r *Registry) enter(k runKey, x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(k, x)
}

func (r *Registry) putLocked(k runKey, x *Execution) {
	if r.byID == nil {
		r.byID = map[runKey]*Execution{}
	}
	r.tidyLocked(k.owner)
	r.byID[k] = x
}

// tidyLocked forgets what is over its time, and the oldest of what is too much: of the
// owner's, and of all.
func (r *Registry) tidyLocked(owner session.Owner) {
	if len(r.byID) == 0 {
		return
	}
	var all []runKey
	for k, x := range r.byID {
		switch {
		case !x.hasEnded():
		case time.Since(x.ended) > keptRun:
			delete(r.byID, k)
		default:
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b runKey) int { return r.byID[b].ended.Compare(r.byID[a].ended) })
	owned, ownBytes, allBytes := 0, 0, 0
	for _, k := range all { // the youngest first
		n := r.byID[k].out.size()
		if allBytes += n; k.owner == owner {
			owned++
			ownBytes += n
		}
		if allBytes > mostBytes || k.owner == owner && (owned >= mostKept || ownBytes > mostOwnBytes) {
			delete(r.byID, k)
		}
	}
}

// tidy does it after one of an owner's has ended.
func (r *Registry) tidy(owner session.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidyLocked(owner)
}

func (r *Registry) remove(x *Execution) {
	k := x.name()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[k] == x {
		delete(r.byID, k)
	}
}

// get gives the execution of a name; nil: there is none.
func (r *Registry) get(k runKey) *Execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[k]
}

// Resume goes on with executions of an owner (empty: of everybody) that wait for a person,
// when somebody has decided and no request is there to do it, until ctx ends. What comes of
// them is kept for an hour for who asks.
func (r *Registry) Resume(ctx context.Context, owner session.Owner) {
	if r.config.Approvals == nil {
		return
	}
	r.resuming.Store(true)
	defer r.resuming.Store(false)
	r.config.Approvals.Watch(ctx, string(owner), r.resumeWaiting)
}

// resumeWaiting goes on with the execution that waits for what was decided.
func (r *Registry) resumeWaiting(a approval.Approval) {
	waiting, err := r.config.Waiting(session.Owner(a.Owner))
	if err != nil {
		r.config.Log.Warn("which executions wait is not known", "cause", fault.CauseOf(err))
		return
	}
	for _, w := range waiting {
		if w.Execution == a.Execution && string(w.Session) == a.Session {
			r.resume(w.Owner, w.Session, w.Execution)
		}
	}
}

// resumeDecided goes on with an execution if one of what it waits for is decided already.
func (r *Registry) resumeDecided(owner session.Owner, res session.Result) {
	for _, one := range res.Waiting {
		a, err := r.config.Approvals.Get(string(owner), one)
		if err == nil && a.State != approval.Pending && a.State != approval.Expired {
			r.resume(owner, res.Session, res.Execution)
			return
		}
	}
}

// resume goes on with an execution in the background, unless a request has it, or Resume
// does not run.
func (r *Registry) resume(owner session.Owner, id session.ID, execution string) {
	k := runKey{owner, execution}
	before := r.get(k)
	if !r.resuming.Load() || before != nil && (!before.hasEnded() || !before.attach()) {
		return
	}
	program := r.config.Unattended(owner, id, execution)
	x := r.newExecution(r.ctx, Request{Owner: owner, Program: program, Before: before})
	x.attached, x.key, x.unattended = false, k, program
	if !r.replace(k, before, x) {
		return
	}
	r.start(x, func(ctx context.Context) (Part, error) {
		part, err := program.Continue(ctx, id, execution)
		part.Told = part.Result.Earlier
		return part, err
	})
}

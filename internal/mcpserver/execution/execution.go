package execution

import (
	"context"
	"slices"
	"sync"
	"time"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Program is what an [Execution] goes on with.
type Program interface {
	// Continue goes on with an execution that waited, until it has ended or waits again.
	Continue(ctx context.Context, id session.ID, execution string) (Part, error)
}

// Begin starts a program, or goes on with one, and returns when it has ended or waits.
type Begin func(ctx context.Context) (Part, error)

// Execution is one execution on its way to its end, through all the times that it waits for
// a person and goes on. It belongs to the request that runs it, or to none: where the
// client has to come back with an answer, and where somebody else decides.
type Execution struct {
	registry *Registry
	owner    session.Owner
	program  Program
	elicitor Elicitor // how the client is asked meanwhile; nil: it is not
	// patient has it go on for as long as it takes.
	patient bool

	ctx       context.Context // of what it runs, and of the questions
	cancel    context.CancelCauseFunc
	questions sync.WaitGroup
	turn      chan struct{} // holds a token while somebody is asked: one question at a time
	changed   chan struct{} // holds a token when there is a new question; may be a task's

	unattended Unattended    // what is told of its end; nil: a request began it
	whole      bool          // its client has heard nothing of it
	prior      *Part         // what its client has not heard of yet; nil: nothing
	done       chan struct{} // closed when there is an outcome
	out        Part          // set before
	err        error
	ended      time.Time

	mu        sync.Mutex // guards what follows
	key       runKey     // once it is known
	attached  bool       // a request has it
	approvals []*pendingApproval
	wake      func() // when set, somebody waits for an answer
}

// pendingApproval is an approval that the client is to be asked about.
type pendingApproval struct {
	approval.Approval
	shown bool // the client is asked by a round that has begun
	done  bool // it was answered or dismissed: it is not asked about any more
}

// Request is what an [Execution] is made for.
type Request struct {
	Owner session.Owner
	// Program goes on with it after it has waited.
	Program Program
	// Elicitor asks the client while its request is answered; nil: it is not asked so.
	Elicitor Elicitor
	// Task are the questions of a call that may become a task; nil: it cannot.
	Task *TaskQuestions
	// Before is the execution's earlier part, which waited; nil: there is none.
	Before *Execution
}

// newExecution makes the execution of a request.
func (r *Registry) newExecution(ctx context.Context, q Request) *Execution {
	x := &Execution{
		registry: r, owner: q.Owner, program: q.Program, elicitor: q.Elicitor, attached: true,
		turn: make(chan struct{}, 1), changed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	if q.Task != nil {
		x.patient, x.elicitor, x.changed = true, nil, q.Task.news
		q.Task.execution.Store(x)
	}
	x.follow(q.Before)
	return x
}

// follow has an execution go on where another one ended; nil: it is the first.
func (x *Execution) follow(before *Execution) {
	if before != nil && before.err == nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		x.prior = &before.out
		for _, q := range before.approvals {
			x.approvals = append(x.approvals, &pendingApproval{Approval: q.Approval, shown: q.shown, done: q.done})
		}
	}
}

// Ask implements [approval.Asker].
func (x *Execution) Ask(a approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.ContainsFunc(x.approvals, func(q *pendingApproval) bool { return q.ID == a.ID }) {
		return
	}
	q := &pendingApproval{Approval: a}
	x.approvals = append(x.approvals, q)
	x.enterLocked(runKey{x.owner, a.Execution})
	select {
	case x.changed <- struct{}{}:
	default:
	}
	if x.elicitor != nil && x.ctx.Err() == nil {
		x.questions.Go(func() { x.askClient(q) })
	}
}

// enterLocked makes it known under what it runs.
func (x *Execution) enterLocked(k runKey) {
	if x.key == k {
		return
	}
	x.key = k
	x.registry.enter(k, x)
}

// askClient asks the client, when nothing else is asked, and keeps what it says.
func (x *Execution) askClient(q *pendingApproval) {
	defer x.finishQuestion(q.ID)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { // others may be faster
		_, _ = x.registry.config.Approvals.Wait(ctx, q.Owner, q.ID) // whatever it is: there is nothing to ask then
		cancel()
	})
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return
	}
	if v := x.elicitor(ctx, q.Approval); ctx.Err() == nil {
		x.registry.decide(x.ctx, q.Approval, v)
	}
}

// finishQuestion says that an approval is not asked about any more.
func (x *Execution) finishQuestion(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		if q.ID == id {
			q.done = true
		}
	}
	if x.wake != nil {
		x.wake()
	}
}

// open are the questions that have no answer.
func (x *Execution) open() (all []approval.Approval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.approvals {
		if !q.done {
			all = append(all, q.Approval)
		}
	}
	return all
}

// takeDecided waits until one of the approvals is decided that an execution waits for. It
// gives up when none of them is being asked about.
func (x *Execution) takeDecided(ids []string) bool {
	store := x.registry.config.Approvals
	if store == nil || len(ids) == 0 {
		return false
	}
	for x.ctx.Err() == nil {
		ctx, wake := context.WithCancel(x.ctx)
		x.mu.Lock()
		x.wake = wake
		asking := x.patient || x.elicitor != nil && slices.ContainsFunc(x.approvals, func(q *pendingApproval) bool { return !q.done && slices.Contains(ids, q.ID) })
		x.mu.Unlock()
		if !asking {
			wake() // it is only looked
		}
		a, err := store.Wait(ctx, string(x.owner), ids...)
		over := ctx.Err() != nil
		wake()
		switch {
		case err == nil && a.State != approval.Pending:
			return true
		case !over: // it cannot be read, or is not there
			return false
		case !asking:
			return false
		}
	}
	return false
}

// run begins an execution and stays with it until it has ended, or has to wait without
// anybody being asked.
func (x *Execution) run(begin Begin) {
	x.finish(begin(approval.WithAsker(x.ctx, x)))
}

// finish takes what came of the beginning, and goes on after each wait.
func (x *Execution) finish(first Part, err error) {
	defer func() {
		close(x.done)
		x.registry.tidy(x.owner)
	}()
	ctx := approval.WithAsker(x.ctx, x)
	if x.out, x.err = first, err; x.prior != nil {
		x.out = x.prior.followedBy(x.out)
	}
	if x.whole {
		x.out.Told = session.Earlier{}
	}
	for waits(x.out, x.err) && x.takeDecided(x.out.Result.Waiting) {
		var more Part
		more, x.err = x.program.Continue(ctx, x.out.Result.Session, x.out.Result.Execution)
		x.out = x.out.followedBy(more)
	}
	x.ended = time.Now()
	if x.unattended != nil {
		if k := fault.KindOf(x.err); k == fault.NotFound || k == fault.Conflict {
			x.registry.remove(x) // another process or request has gone on with it
		}
		x.unattended.Ended(x.ctx, x.out.Result.Wall, x.err)
	}
}

// leave lets go of an execution whose request is answered. One that waits is gone on with
// when somebody decides; where that was just now, at once.
func (x *Execution) leave() {
	x.cancel(nil)
	x.questions.Wait()
	x.registry.remove(x)
	x.resumeLater()
}

// resumeLater sees to it that an execution goes on that waits for what is decided by now: of
// what is decided later others hear.
func (x *Execution) resumeLater() {
	if x.hasEnded() && x.Waits() {
		x.registry.resumeDecided(x.owner, x.out.Result)
	}
}

// hasEnded reports whether there is an outcome.
func (x *Execution) hasEnded() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// Waits reports whether what an execution came to, by [Registry.Claim] or at its end, is a
// program that waits.
func (x *Execution) Waits() bool { return waits(x.out, x.err) }

// Outcome is what it came to, likewise.
func (x *Execution) Outcome() (Part, error) { return x.out, x.err }

func waits(p Part, err error) bool { return err == nil && p.Result.Exit.Cause == sandbox.Waiting }

// attach makes an execution a request's, and reports whether it is now; another one has it
// else.
func (x *Execution) attach() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached {
		return false
	}
	x.attached = true
	return true
}

// detach leaves it to itself.
func (x *Execution) detach() {
	x.mu.Lock()
	x.attached = false
	x.mu.Unlock()
	x.resumeLater()
}

// name is what it is known under; the zero key: it is not.
func (x *Execution) name() runKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.key
}

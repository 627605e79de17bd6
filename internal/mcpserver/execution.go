package mcpserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// execution is one execution on its way to its end, through all the times that it waits for
// a person and goes on. It belongs to the request that runs it, or to none: where the
// client has to come back with an answer, and where somebody else decides.
type execution struct {
	server   *Server
	owner    session.Owner
	elicitor elicitor // how the client is asked meanwhile; nil: it is not
	// patient has it go on for as long as it takes.
	patient bool

	ctx       context.Context // of what it runs, and of the questions
	cancel    context.CancelCauseFunc
	questions sync.WaitGroup
	turn      chan struct{} // holds a token while somebody is asked: one question at a time
	changed   chan struct{} // holds a token when there is a new question; may be a task's

	resumed bool           // there was no request that began it
	whole   bool           // its client has heard nothing of it
	prior   *partialResult // what its client has not heard of yet; nil: nothing
	done    chan struct{}  // closed when there is an outcome
	out     partialResult  // set before
	err     error
	ended   time.Time
	call    *call // likewise, as the run left it

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
	done  bool // it was answered, or dismissed: nobody is asked any more
}

// partialResult is what came of an execution until now.
type partialResult struct {
	res  session.Result
	kept filed
	// told is how much of what was printed its client knows from an earlier result.
	told session.Earlier
}

// runKey names an execution.
type runKey struct {
	owner     session.Owner
	execution string
}

// newExecution makes the pursuit of a call's request.
func (c *call) newExecution(ctx context.Context) *execution {
	own := *c // the request may be answered before the run has ended
	p := &execution{
		server: c.server, owner: c.bound.Owner, attached: true, call: &own,
		turn: make(chan struct{}, 1), changed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if c.server.config.AskClient {
		p.elicitor = c.asker
	}
	if c.task != nil {
		p.patient, p.elicitor, p.changed = true, nil, c.task.news
		c.task.pursuit.Store(p)
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// Ask implements [approval.Asker].
func (x *execution) Ask(a approval.Approval) {
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
func (x *execution) enterLocked(k runKey) {
	if x.key == k {
		return
	}
	x.key = k
	x.server.executions.enter(k, x)
}

// askClient asks the client, when nothing else is asked, and keeps what it says.
func (x *execution) askClient(q *pendingApproval) {
	defer x.finish(q.ID)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { // others may be faster
		_, _ = x.server.config.Approvals.Wait(ctx, q.Owner, q.ID) // whatever it is: there is nothing to ask then
		cancel()
	})
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return
	}
	if v := x.elicitor(ctx, q.Approval); ctx.Err() == nil {
		x.server.decide(x.ctx, q.Approval, v)
	}
}

// finish says that nobody is asked about an approval any more.
func (x *execution) finish(id string) {
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
func (x *execution) open() (all []approval.Approval) {
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
// gives up where nobody is being asked about any of them.
func (x *execution) takeDecided(ids []string) bool {
	store := x.server.config.Approvals
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

// execute begins an execution, or goes on with one, and stays with it until it has ended or
// has to wait with nobody being asked.
func (x *execution) execute(in executeInput) {
	defer func() {
		close(x.done)
		x.server.executions.tidy(x.owner)
	}()
	c, ctx := x.call, approval.WithAsker(x.ctx, x)
	if x.out, x.err = c.begin(ctx, in); x.prior != nil {
		x.out = x.prior.followedBy(x.out)
	}
	if x.whole {
		x.out.told = session.Earlier{}
	}
	for x.err == nil && x.out.res.Exit.Cause == sandbox.Waiting && x.takeDecided(x.out.res.Waiting) {
		var more partialResult
		more, x.err = c.goOn(ctx, x.out.res.Session, x.out.res.Execution, 0)
		x.out = x.out.followedBy(more)
	}
	x.ended = time.Now()
	if x.resumed {
		if k := fault.KindOf(x.err); k == fault.NotFound || k == fault.Conflict {
			x.server.executions.remove(x) // somebody else has gone on with it
		}
		x.server.record(x.ctx, "execute_code", c, x.out.res.Wall, x.err)
	}
}

// followedBy puts together what an execution did before and after it waited.
func (r partialResult) followedBy(more partialResult) partialResult {
	shift := len(r.res.Displays)
	displays := map[int]place{}
	for k, f := range r.kept.displays {
		displays[k] = f
	}
	for k, f := range more.kept.displays {
		displays[k+shift] = f
	}
	more.res.Displays = append(slices.Clip(r.res.Displays), more.res.Displays...)
	more.res.Changes = append(slices.Clip(r.res.Changes), more.res.Changes...)
	more.res.Notice = strings.TrimSpace(r.res.Notice + " " + more.res.Notice)
	more.res.Wall += r.res.Wall
	more.kept.displays, more.told = displays, r.told
	more.kept.noPictures = r.kept.noPictures || more.kept.noPictures
	return more
}

// leave lets go of a pursuit whose request is answered. One that waits is gone on with
// when somebody decides; where that was just now, at once.
func (x *execution) leave() {
	x.cancel(nil)
	x.questions.Wait()
	x.server.executions.remove(x)
	x.resumeLater()
}

// resumeLater sees to it that an execution goes on that waits for what is decided by now: of
// what is decided later others hear.
func (x *execution) resumeLater() {
	if x.hasEnded() && isWaiting(x) {
		x.server.resumeDecided(x.owner, x.out.res.Session, x.out.res.Execution, x.out.res.Waiting)
	}
}

// executions are the executions that were asked about something, or go on without a request.
type executions struct {
	mu   sync.Mutex // guards byID; taken after a pursuit's own
	byID map[runKey]*execution
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

// follow has a pursuit go on where another one ended; nil: it is the first.
func (x *execution) follow(before *execution) {
	if before != nil && before.err == nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		x.prior = &before.out
		for _, q := range before.approvals {
			x.approvals = append(x.approvals, &pendingApproval{Approval: q.Approval, shown: q.shown, done: q.done})
		}
	}
}

// replace makes a pursuit the one of its execution if before is it still.
func (r *executions) replace(k runKey, before, p *execution) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[k] != before {
		return false
	}
	r.putLocked(k, p)
	return true
}

// enter makes a pursuit the one of its execution.
func (r *executions) enter(k runKey, p *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(k, p)
}

func (r *executions) putLocked(k runKey, p *execution) {
	if r.byID == nil {
		r.byID = map[runKey]*execution{}
	}
	r.tidyLocked(k.owner)
	r.byID[k] = p
}

// tidyLocked forgets what is over its time, and the oldest of what is too much: of the
// owner's, and of all.
func (r *executions) tidyLocked(owner session.Owner) {
	var all []runKey
	for k, p := range r.byID {
		switch {
		case !p.hasEnded():
		case time.Since(p.ended) > keptRun:
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
func (r *executions) tidy(owner session.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidyLocked(owner)
}

// size is how many bytes of what programs gave it holds.
func (r partialResult) size() int {
	n := len(r.res.Stdout) + len(r.res.Stderr)
	for _, d := range r.res.Displays {
		n += len(d.Data)
	}
	for _, f := range r.kept.displays {
		n += len(f.smaller)
	}
	return n
}

// hasEnded tells whether there is an outcome.
func (x *execution) hasEnded() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

func (r *executions) remove(p *execution) {
	k := p.name()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[k] == p {
		delete(r.byID, k)
	}
}

// get gives the pursuit of an execution; nil: there is none.
func (r *executions) get(k runKey) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[k]
}

// attach makes a pursuit a request's, and tells whether it is now; another one has it
// else.
func (x *execution) attach() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached {
		return false
	}
	x.attached = true
	return true
}

// detach leaves it to itself.
func (x *execution) detach() {
	x.mu.Lock()
	x.attached = false
	x.mu.Unlock()
	x.resumeLater()
}

// name is what it is known under; the zero key: it is not.
func (x *execution) name() runKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.key
}

// start runs a pursuit in the background. A Server that is closed runs none.
func (s *Server) start(p *execution, in executeInput) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		p.err = errDraining
		close(p.done)
		return
	}
	s.jobs.Go(func() {
		defer p.cancel(nil)
		defer context.AfterFunc(s.ctx, func() { p.cancel(context.Cause(s.ctx)) })()
		p.execute(in)
	})
}

// Close stops what runs without a request, and waits for it. It works twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.stop(errDraining)
	s.mu.Unlock()
	s.jobs.Wait()
}

// Resume goes on with executions of an owner (empty: of everybody) that wait for a person,
// when somebody has decided and no request is there to do it, until ctx ends; what comes of
// them is kept for an hour for who asks.
func (s *Server) Resume(ctx context.Context, owner session.Owner) {
	if s.config.Approvals == nil {
		return
	}
	s.resuming.Store(true)
	defer s.resuming.Store(false)
	s.config.Approvals.Watch(ctx, string(owner), s.resumed)
}

// resumed looks whether an execution waits for what was decided.
func (s *Server) resumed(a approval.Approval) {
	waiting, err := s.config.Sessions.WaitingRuns(session.Owner(a.Owner))
	if err != nil {
		s.log.Warn("which executions wait is not known", "cause", fault.CauseOf(err))
		return
	}
	for _, w := range waiting {
		if w.Execution == a.Execution && string(w.Session) == a.Session {
			s.resume(w.Owner, w.Session, w.Execution)
		}
	}
}

// resumeDecided goes on with an execution if one of what it waits for is decided already.
func (s *Server) resumeDecided(owner session.Owner, id session.ID, execution string, ids []string) {
	for _, one := range ids {
		if a, err := s.config.Approvals.Get(string(owner), one); err == nil && a.State != approval.Pending && a.State != approval.Expired {
			s.resume(owner, id, execution)
			return
		}
	}
}

// resume goes on with an execution in the background, unless somebody has it, or nobody is
// there for it.
func (s *Server) resume(owner session.Owner, id session.ID, execution string) {
	k := runKey{owner, execution}
	before := s.executions.get(k)
	if !s.resuming.Load() || before != nil && (!before.hasEnded() || !before.attach()) {
		return
	}
	c := &call{server: s, bound: Bound{Owner: owner}, session: id, execution: execution}
	p := c.newExecution(s.ctx)
	p.attached, p.key, p.resumed = false, k, true
	if p.follow(before); s.executions.replace(k, before, p) {
		s.start(p, executeInput{session: id, execution: execution})
	}
}

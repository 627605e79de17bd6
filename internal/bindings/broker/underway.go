package broker

import (
	"context"
	"fmt"
	"sync"

	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

// underway has the calls of runs that have not ended. A run's calls are kept in the
// journal from the moment when one of them has to be asked about, those included that
// were under way then: such a run may be suspended, and its calls are asked for again,
// maybe by another process. Other runs end with this one, and need no journal.
type underway struct {
	mu   sync.Mutex // guards what follows
	runs map[journal.Run]*activity
}

// activity is a run that has calls under way.
type activity struct {
	users int // guarded by underway.mu

	mu    sync.Mutex // guards what follows, and is held while calls are written down
	kept  bool       // what begins now is written down
	calls map[int]*ongoing
}

// ongoing is a call that has been, or is about to be, sent.
type ongoing struct {
	call   journal.Call
	kept   bool          // it was written down that it began; guarded by activity.mu
	ended  chan struct{} // closed when there is an answer
	answer []byte
}

func runOf(run Run) journal.Run {
	return journal.Run{Owner: run.Owner, Session: run.ID, Execution: run.Execution}
}

func keyOf(run Run, number int) string { return fmt.Sprintf("%s/%d", run.Execution, number) }

// enter gives a run's activity; leave gives it back.
func (u *underway) enter(r journal.Run) *activity {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs == nil {
		u.runs = map[journal.Run]*activity{}
	}
	a := u.runs[r]
	if a == nil {
		a = &activity{calls: map[int]*ongoing{}}
		u.runs[r] = a
	}
	a.users++
	return a
}

func (u *underway) leave(r journal.Run, a *activity) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(u.runs, r)
	}
}

// recall gives the answer to a call that was made before, whoever made it: nil: it was
// not. A call of which nobody knows what came is answered as that.
func (b *Broker) recall(ctx context.Context, a *activity, c journal.Call) ([]byte, error) {
	a.mu.Lock()
	going := a.calls[c.Number]
	a.mu.Unlock()
	if going != nil {
		if going.call.Digest != c.Digest {
			return nil, fault.New(fault.Conflict, "call %d of the run was another one before", c.Number)
		}
		select {
		case <-going.ended:
			return going.answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if !b.config.Journal.Has(c.Run) {
		return nil, nil
	}
	known, err := b.config.Journal.Look(ctx, c)
	if err != nil || known == nil {
		return nil, err
	}
	return recalled(known), nil
}

func recalled(known *journal.Outcome) []byte {
	if known.Unknown {
		return answer{Error: &failure{Kind: "unknown", Message: "the call began before the run was interrupted, and whether it was carried out is not known; look before you repeat it"}}.encode("", nil)
	}
	return known.Answer
}

// keep has a run's calls written down from now on, and those that are under way.
func (b *Broker) keep(ctx context.Context, a *activity) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = true
	for _, c := range a.calls {
		if c.kept {
			continue
		}
		if _, err := b.config.Journal.Begin(ctx, c.call); err != nil {
			return err
		}
		c.kept = true
	}
	return nil
}

// start registers a call, and writes down that it begins where that is due. An answer
// says that it began before, and is not to be made.
func (b *Broker) start(ctx context.Context, a *activity, c journal.Call) (*ongoing, []byte, error) {
	going := &ongoing{call: c, ended: make(chan struct{})}
	a.mu.Lock()
	if a.calls[c.Number] != nil {
		a.mu.Unlock()
		return nil, nil, fault.New(fault.Conflict, "call %d of the run is under way", c.Number)
	}
	a.kept = a.kept || b.config.Journal.Has(c.Run)
	going.kept = a.kept
	a.calls[c.Number] = going
	a.mu.Unlock()
	if !going.kept {
		return going, nil, nil
	}
	known, err := b.config.Journal.Begin(ctx, c)
	switch {
	case err != nil:
		a.drop(going, failed(err).encode("", nil))
	case known != nil:
		a.drop(going, recalled(known))
	default:
		return going, nil, nil
	}
	return nil, going.answer, err
}

// drop lets go of a call that has an answer.
func (a *activity) drop(going *ongoing, answer []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropLocked(going, answer)
}

func (a *activity) dropLocked(going *ongoing, answer []byte) {
	going.answer = answer
	delete(a.calls, going.call.Number)
	close(going.ended)
}

// finish takes a call's answer, and writes it down where its beginning was.
func (b *Broker) finish(ctx context.Context, a *activity, going *ongoing, answer []byte, unsent bool) {
	a.mu.Lock()
	kept := going.kept
	if !kept {
		a.dropLocked(going, answer)
	}
	a.mu.Unlock()
	if !kept {
		return
	}
	o := journal.Outcome{Answer: answer}
	if unsent {
		o = journal.Outcome{Unsent: true}
	}
	if err := b.config.Journal.End(context.WithoutCancel(ctx), going.call, o); err != nil {
		// After a crash nobody knows how it ended, which is known now.
		b.config.Log.Warn("how a call ended cannot be written down", "session", going.call.Session, "cause", err)
	}
	a.drop(going, answer)
}

// isKept tells whether a call outlives the run that made it.
func (a *activity) isKept(going *ongoing) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return going.kept
}

// outcome is what came of a call to a server.
type outcome struct {
	result upstream.Result
	err    error
}

// Finished lets go of what is kept of a run's calls, when it has ended and will not be
// gone on with.
func (b *Broker) Finished(run Run) {
	if b.config.Journal == nil {
		return
	}
	if err := b.config.Journal.Remove(runOf(run)); err != nil {
		b.config.Log.Warn("the calls of a run cannot be removed from the disk", "session", run.ID, "cause", err)
	}
}

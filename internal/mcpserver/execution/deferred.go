package execution

import (
	"context"
	"sync"

	"paddock/internal/approval"
	"paddock/internal/fault"
)

// Run runs a program for a request, which waits until it has ended, or waits without
// anybody being asked. Most programs wait for no approval, and for them begin is all that
// happens: an Execution is made when the first approval arrives.
func (r *Registry) Run(ctx context.Context, q Request, begin Begin) (Part, error) {
	d := &deferred{registry: r, ctx: ctx, request: q}
	if q.Before != nil {
		d.x = r.newExecution(ctx, q)
	}
	returned := false
	defer func() {
		if x := d.end(false); x != nil && !returned { // begin panicked
			x.finish(Part{}, errPanicked)
			x.leave()
		}
	}()
	part, err := begin(approval.WithAsker(ctx, d))
	returned = true
	x := d.end(waits(part, err))
	if x == nil {
		r.tidy(q.Owner)
		return part, err
	}
	x.finish(part, err)
	x.leave()
	return x.Outcome()
}

// errPanicked is the outcome of a program whose request panicked.
var errPanicked = fault.New(fault.Internal, "paddock made a mistake").WithHint("the server's log says more")

// deferred is the Execution of a request that has none until it is asked about something.
type deferred struct {
	registry *Registry
	ctx      context.Context // the request's
	request  Request

	mu    sync.Mutex // guards what follows
	x     *Execution // nil: there is none yet
	ended bool       // none is made any more
}

var _ approval.Asker = (*deferred)(nil)

// Ask implements [approval.Asker].
func (d *deferred) Ask(a approval.Approval) {
	d.mu.Lock()
	if d.x == nil && !d.ended {
		d.x = d.registry.newExecution(d.ctx, d.request)
	}
	x := d.x
	d.mu.Unlock()
	if x != nil {
		x.Ask(a)
	}
}

// end gives the Execution when its beginning is over; nil: there is none. One that waits
// has one.
func (d *deferred) end(waits bool) *Execution {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.x == nil && waits {
		d.x = d.registry.newExecution(d.ctx, d.request)
	}
	return d.x
}

package proxy

import (
	"context"

	"paddock/internal/fault"
)

// Dial opens a connection to a host before there is a request, which takes it, so that
// a program that opens a stream learns at once what comes of it: that it may not, that
// there is no such host, or that its certificate is not trusted. After end the
// connection is closed where no request took it. What is not allowed, and what fails, is
// recorded; errors are faults, whose cause says which failure it is.
func (p *Proxy) Dial(ctx context.Context, host string, port int, tls bool) (end func(), err error) {
	at, err := originFrom(host, port, tls)
	if err != nil {
		return nil, err
	}
	if p.isLocal(at.host, port) {
		return func() {}, nil
	}
	if err := p.Reach(at.host, port); err != nil {
		return nil, p.explain(reasonHost, *at, err)
	}
	if err := p.budget.spent(); err != nil {
		return nil, p.refuse(at, "", reasonBudget, err)
	}
	r, err := p.present()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	end, err = r.transport.Ahead(ctx, at.scheme, at.host, at.port)
	switch {
	case err == nil:
		return end, nil
	case ctx.Err() != nil:
		return nil, fault.Of(ctx.Err())
	}
	_ = p.budget.requests.take(1) // it costs a record like a request
	return nil, p.refuse(at, "", reasonOf(err), err)
}

// present gives the present route.
func (p *Proxy) present() (*route, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed()
	}
	return p.route, nil
}

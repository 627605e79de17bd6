package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// exchange is one request and its answer.
type exchange struct {
	proxy  *Proxy
	link   *link
	at     origin
	method string
	path   string // as it came, escaped
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	grant  egress.Grant
	route  *route

	decision       Decision
	status         int
	sent, received atomic.Int64
	moved          atomic.Int64 // when something last did, in nanoseconds of Unix time
	answering      atomic.Bool  // the answer's header has come

	mu     sync.Mutex
	timer  *time.Timer
	over   bool
	wasCut bool
	reason string // the first of what kept it from ending well
	why    error
	addr   netip.Addr // that was dialled
}

// newExchange begins a request, whose time begins with it.
func (p *Proxy) newExchange(l *link, r *http.Request) *exchange {
	e := &exchange{proxy: p, link: l, method: r.Method, path: r.URL.EscapedPath(), began: now(), decision: Denied}
	if l.origin != nil {
		e.at = *l.origin
	}
	_ = l.SetWriteDeadline(time.Time{}) // of the request before
	e.ctx, e.cancel = context.WithCancelCause(r.Context())
	e.touch()
	if next := e.next(); next > 0 {
		e.mu.Lock()
		e.timer = time.AfterFunc(next, e.look)
		e.mu.Unlock()
	}
	return e
}

// touch notes that something moves.
func (e *exchange) touch() { e.moved.Store(time.Now().UnixNano()) }

// next is in how long the exchange has stood still, or lasted, for too long: 0: never;
// negative: it has.
func (e *exchange) next() time.Duration {
	b := e.proxy.config.Budgets
	idle, longest := time.Duration(0), time.Duration(0)
	if b.Idle > 0 {
		idle = min(time.Until(time.Unix(0, e.moved.Load()).Add(b.Idle)), b.Idle)
		if idle <= 0 {
			return -1
		}
	}
	if b.Longest > 0 {
		longest = min(time.Until(e.began.Add(b.Longest)), b.Longest)
		if longest <= 0 {
			return -1
		}
	}
	if idle > 0 && (longest == 0 || idle < longest) {
		return idle
	}
	return longest
}

// look cuts an exchange that has taken too long.
func (e *exchange) look() {
	next := e.next()
	if next < 0 {
		e.cut(because(reasonIdle, fault.New(fault.Unavailable, "the request stood still for %v, or took more than %v", e.proxy.config.Budgets.Idle, e.proxy.config.Budgets.Longest)))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over && next > 0 {
		e.timer.Reset(next)
	}
}

// cut ends an exchange that is under way, for that reason. Where no answer has come yet
// the program is told; else its connection ends.
func (e *exchange) cut(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	e.wasCut = true
	e.failLocked(reasonOf(err), err)
	e.cancel(err)
	if e.answering.Load() {
		e.link.abort()
		return
	}
	if e.link.SetReadDeadline(time.Unix(1, 0)) != nil { // what waits for the program's body goes on
		e.link.abort()
	}
}

// stop says that an exchange is over: nothing cuts it any more. What is left of the
// program's body, and of the answer in buffers, may take a moment.
func (e *exchange) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.cancel(nil)
	moment := e.proxy.header()
	_ = e.link.SetWriteDeadline(time.Now().Add(2 * moment)) // an answer may wait for the rest of the body
	if !e.wasCut {
		_ = e.link.SetReadDeadline(time.Now().Add(moment)) // the server sets another one before it waits for the next request
	}
}

// fail notes why an exchange did not end well; the first reason counts.
func (e *exchange) fail(reason string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(reason, err)
}

func (e *exchange) failLocked(reason string, err error) {
	if e.reason == "" {
		e.reason, e.why = reason, err
	}
}

// failed is why it did not end well; nil: nothing yet.
func (e *exchange) failed() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason, e.why
}

// asked is what is decided about.
func (e *exchange) asked() egress.Request {
	return egress.Request{Method: e.method, Host: e.at.host, Port: e.at.port, Path: e.path}
}

// dialled notes the address that answers.
func (e *exchange) dialled(addr netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addr = addr
}

// stillAllowed says why another policy would not have let the exchange begin.
func (e *exchange) stillAllowed(p egress.Policy) error {
	_, err := p.CheckRequest(e.asked())
	e.mu.Lock()
	addr := e.addr
	e.mu.Unlock()
	if err == nil && addr.IsValid() {
		err = p.CheckAddr(e.at.host, addr, e.at.port)
	}
	if err != nil {
		return because(reasonPolicy, err)
	}
	return nil
}

// record is what the audit log gets.
func (e *exchange) record() Record {
	reason, err := e.failed()
	r := Record{
		Session: e.proxy.config.Session, Time: e.began, Scheme: e.at.scheme, Host: e.at.host, Port: e.at.port, Method: shortMethod(e.method),
		Path: pathDigest(e.path), Decision: e.decision, Rule: e.grant.Rule, Status: e.status, Sent: e.sent.Load(), Received: e.received.Load(),
		Duration: time.Since(e.began), Cause: reason,
	}
	switch fault.KindOf(err) {
	case fault.Denied:
		r.Decision = Denied
	case fault.Exhausted:
		r.Decision = Exhausted
	}
	return r
}

// shortMethod keeps a method that somebody made up from filling a record.
func shortMethod(method string) string {
	if len(method) > 20 {
		return method[:20]
	}
	return method
}

package proxy

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"golang.org/x/net/http/httpguts"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// noLog takes what nobody should read.
var noLog = log.New(io.Discard, "", 0)

// originFrom is the origin of a stream that was opened to a host.
func originFrom(host string, port int, tls bool) (*origin, error) {
	name, err := egress.Host(host)
	if err == nil && (port < 1 || port > 65535) {
		err = fault.New(fault.Invalid, "there is no port %d", port)
	}
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return &origin{scheme, name, port}, err
}

// serve answers a request of a program's.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	l := r.Context().Value(linkKey{}).(*link)
	l.requests.Add(1)
	if r.Method == http.MethodConnect {
		p.connect(w, r, l)
		return
	}
	e := p.newExchange(l, r)
	defer p.end(e)
	if err := e.prepare(r); err != nil {
		p.answerError(w, r, e, err)
		return
	}
	if handler := p.local[e.at.host]; handler != nil && p.isLocal(e.at.host, e.at.port) {
		e.decision = Local
		e.serveLocal(w, r, handler)
		return
	}
	if err := p.admit(e); err != nil {
		p.answerError(w, r, e, err)
		return
	}
	defer p.release(e)
	p.forward(w, r, e)
}

// end records a request that is over. A panic other than that of an answer that is cut
// short is a mistake of ours; the program sees its connection end either way.
func (d *Proxy) end(e *exchange) {
	p := recover()
	if p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			e.fail(reasonGone, fault.New(fault.Cancelled, "the program went away"))
		} else {
			d.config.Log.Error("the network proxy panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			e.fail(reasonInternal, fault.New(fault.Internal, "the proxy made a mistake"))
		}
	}
	e.stop()
	d.tell(e.record())
	if p != nil {
		panic(http.ErrAbortHandler)
	}
}

// prepare finds out what a request is for, and what it may not be whoever it is for.
func (e *exchange) prepare(r *http.Request) error {
	if e.link.refused != nil {
		reason := reasonHost
		if fault.KindOf(e.link.refused) == fault.Exhausted {
			reason = reasonCrowd
		}
		return because(reason, e.link.refused)
	}
	at, err := e.link.target(r)
	if at != nil {
		e.at = *at
	}
	if err != nil {
		return err
	}
	if err := e.proxy.budget.requests.take(1); err != nil {
		return because(reasonBudget, err)
	}
	if err := e.proxy.budget.spent(); err != nil && e.proxy.local[e.at.host] == nil {
		return because(reasonBudget, err)
	}
	if r.Method == http.MethodTrace {
		return because(reasonMethod, fault.New(fault.Denied, "the method TRACE is not let out: what answers it repeats credentials"))
	}
	return checkUpgrade(r)
}

// checkUpgrade refuses what wants to become another protocol. An offer of HTTP/2 is one
// that a server may pass over.
func checkUpgrade(r *http.Request) error {
	upgrade := r.Header.Get("Upgrade")
	if strings.EqualFold(upgrade, "h2c") {
		r.Header.Del("Upgrade")
		r.Header.Del("Http2-Settings")
		r.Header["Connection"] = without(r.Header["Connection"], "upgrade")
		return nil
	}
	if upgrade != "" || httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		return because(reasonProtocol, fault.New(fault.Denied, "a WebSocket, or another protocol than HTTP, is not let out").
			WithHint("use requests and answers, or events that are streamed in an answer"))
	}
	return nil
}

// without takes a word out of a header's lists.
func without(lists []string, word string) []string {
	var kept []string
	for _, list := range lists {
		for one := range strings.SplitSeq(list, ",") {
			if one = strings.TrimSpace(one); !strings.EqualFold(one, word) {
				kept = append(kept, one)
			}
		}
	}
	return kept
}

// target is whom a request is meant for. Where the link has an origin, everything in the
// request has to name that one.
func (l *link) target(r *http.Request) (*origin, error) {
	switch {
	case r.URL.Opaque != "" || r.URL.User != nil || r.RequestURI == "*":
		return l.origin, because(reasonProtocol, fault.New(fault.Invalid, "the target of the request is not a URL of a host without a user"))
	case l.origin == nil && r.URL.Host == "":
		return nil, because(reasonProtocol, fault.New(fault.Invalid, "this is the proxy by which a sandbox reaches its network, and no server").
			WithHint("ask it for a whole URL, or to connect; a proxy is set by HTTP_PROXY and HTTPS_PROXY"))
	case l.origin == nil:
		return originOfURL(r.URL)
	}
	if r.Host == "" {
		return l.origin, nil // HTTP/1.0
	}
	named := &url.URL{Scheme: l.origin.scheme, Host: r.Host}
	if r.URL.Scheme != "" {
		named.Scheme = r.URL.Scheme
	}
	if at, err := originOfURL(named); err != nil || *at != *l.origin {
		return l.origin, because(reasonMismatch, fault.New(fault.Denied, "a request on a connection to %s is for the host %.100q", l.origin.authority(), r.Host).
			WithHint("open a connection to the host that it is for"))
	}
	return l.origin, nil
}

func originOfURL(u *url.URL) (*origin, error) {
	scheme, host, port, err := egress.Origin(u)
	if err != nil {
		return nil, because(reasonHost, err)
	}
	return &origin{scheme, host, port}, nil
}

func (o origin) authority() string { return egress.Authority(o.scheme, o.host, o.port) }

// admit decides about a request and, where it may go, lists it among those that a
// change of the policy looks at.
func (p *Proxy) admit(e *exchange) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return because(reasonClosed, errClosed())
	}
	grant, err := p.route.policy.CheckRequest(e.asked())
	if err != nil {
		return because(whyDenied(p.route.policy, e.at, err), err)
	}
	e.route, e.grant = p.route, grant
	p.open[e] = struct{}{}
	return nil
}

// whyDenied tells apart why a policy refuses.
func whyDenied(p egress.Policy, at origin, err error) string {
	switch {
	case errors.Is(err, egress.ErrAddress):
		return reasonAddress
	case p.Reach(at.host, at.port) == nil:
		return reasonRequest
	}
	return reasonHost
}

// release takes a request off the list. Connections of rules that are no longer those of
// the proxy are not kept.
func (p *Proxy) release(e *exchange) {
	p.mu.Lock()
	delete(p.open, e)
	stale := p.closed || e.route != p.route
	p.mu.Unlock()
	if stale {
		e.route.transport.CloseIdleConnections()
	}
}

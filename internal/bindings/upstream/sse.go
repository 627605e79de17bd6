package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
)

// duplex is a link over the transport of 2024-11-05: one stream of events from the
// server, and an endpoint of its choice, on its own origin, for what is sent to it.
type duplex struct {
	*mux
	endpoint *endpoint
	cancel   context.CancelFunc
	reader   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	target  *url.URL
	version string
}

var _ link = (*duplex)(nil)

// openDuplex connects. ctx bounds that alone.
func openDuplex(ctx context.Context, e *endpoint, hear func(message)) (*duplex, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &duplex{endpoint: e, cancel: cancel}
	d.mux = newMux(hear, d.post)
	stop := context.AfterFunc(ctx, cancel)
	resp, err := e.do(life, http.MethodGet, e.url, http.Header{"Accept": {typeEvents}}, nil)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	next, err := d.greeted(resp)
	if !stop() && err == nil {
		err = asProblem(ctx.Err(), true)
	}
	if err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, err
	}
	d.reader.Go(func() {
		d.fail(d.pass(next))
		_ = resp.Body.Close()
	})
	return d, nil
}

// greeted reads the first event, which says where to send to, and gives what reads
// the messages after it.
func (d *duplex) greeted(resp *http.Response) (func() ([]byte, error), error) {
	if kind := kindOf(resp); kind != typeEvents {
		return nil, newProblem(Malformed, true, nil, "it answered with the type %q", saying(kind, 100))
	}
	next := events(resp.Body, d.endpoint.server.limit())
	first, err := next()
	if err != nil {
		return nil, d.broken(err)
	}
	target, err := d.endpoint.url.Parse(string(first.data))
	if first.name != "endpoint" || err != nil {
		return nil, newProblem(Malformed, true, err, "it does not say where to send to")
	}
	if origin(target) != origin(d.endpoint.url) || target.User != nil {
		return nil, newProblem(Unreachable, true, nil, "it wants to be sent to at %s, which is not where it is", origin(target))
	}
	d.target = target
	return func() ([]byte, error) {
		for {
			e, err := next()
			if err != nil {
				return nil, d.broken(err)
			}
			if len(e.data) > 0 && (e.name == "" || e.name == "message") {
				return e.data, nil
			}
		}
	}, nil
}

func (d *duplex) broken(err error) error {
	var p *problem
	if errors.As(err, &p) {
		return err
	}
	return io.EOF
}

// post sends one message. The answer comes over the stream.
func (d *duplex) post(ctx context.Context, data []byte) (sent bool, err error) {
	header := http.Header{"Content-Type": {typeJSON}, "Accept": {typeJSON}}
	d.mu.Lock()
	target := d.target
	if d.version != "" {
		header["Mcp-Protocol-Version"] = []string{d.version}
	}
	d.mu.Unlock()
	resp, err := d.endpoint.do(ctx, http.MethodPost, target, header, data)
	if err == nil {
		discard(resp)
		return true, nil
	}
	p := *asProblem(err, true)
	if status := statusOf(err); status == http.StatusNotFound || status == http.StatusGone {
		p = *newProblem(SessionGone, false, err, "it has forgotten the session")
		d.fail(&p)
	}
	return p.sent, &p
}

func (d *duplex) settle(version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version = version
}

func (d *duplex) listen(context.Context, outgoing) error { return errNoStream }

func (d *duplex) close() error {
	d.fail(newProblem(Closed, true, nil, "the connection was closed"))
	d.tasks.Wait()
	d.cancel()
	d.reader.Wait()
	return nil
}

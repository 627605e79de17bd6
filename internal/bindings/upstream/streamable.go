package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"paddock/internal/iolimit"
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

const (
	// streamCaps is how many messages of the largest size one stream may carry.
	streamCaps = 4
	// mostResumes is how often in a row a stream may break off and be taken up again
	// without a new event.
	mostResumes = 5
	// firstPause is how long it is waited before a broken stream is taken up again
	// where the server says nothing about it.
	firstPause = 500 * time.Millisecond
)

// streamable is a link over Streamable HTTP. Each request is a POST of its own, so
// what goes wrong with one concerns no other.
type streamable struct {
	*endpoint
	hear  func(message)
	tasks sync.WaitGroup
	ended chan struct{}

	mu      sync.Mutex // guards what follows
	err     error
	version string // empty until it is agreed upon
	session string // of the legacy era; empty: none
	asides  int
}

var _ link = (*streamable)(nil)

func newStreamable(e *endpoint, hear func(message)) *streamable {
	return &streamable{endpoint: e, hear: hear, ended: make(chan struct{})}
}

func (l *streamable) gone() <-chan struct{} { return l.ended }

func (l *streamable) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *streamable) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.ended)
	}
}

func (l *streamable) settle(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// header is what each request has.
func (l *streamable) header(accept string) http.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := http.Header{"Accept": {accept}}
	if l.version != "" {
		h["Mcp-Protocol-Version"] = []string{l.version}
	}
	if l.session != "" {
		h["Mcp-Session-Id"] = []string{l.session}
	}
	return h
}

func (l *streamable) call(ctx context.Context, r outgoing) (json.RawMessage, error) {
	if err := l.why(); err != nil {
		return nil, newProblem(Closed, false, err, "the connection has ended")
	}
	body, err := request(r.id, r.method, r.params)
	if err != nil {
		return nil, newProblem(Misused, false, err, "the arguments are no JSON")
	}
	resp, err := l.post(ctx, r, body)
	if err == nil {
		var value json.RawMessage
		value, err = l.answer(ctx, resp, r)
		_ = resp.Body.Close()
		if err == nil {
			return value, nil
		}
	}
	if p := asProblem(err, true); p.sent && (p.reason == Cancelled || p.reason == TimedOut) && !l.isModern() {
		l.aside(func() ([]byte, error) { return cancellation(r.id, p) }) // in the modern era the broken stream says it
	}
	return nil, err
}

func (l *streamable) isModern() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version == modern
}

// post sends a message.
func (l *streamable) post(ctx context.Context, r outgoing, body []byte) (*http.Response, error) {
	header := l.header(typeJSON + ", " + typeEvents)
	header["Content-Type"] = []string{typeJSON}
	if r.headers != nil {
		for name, values := range r.headers {
			header[name] = values
		}
	}
	if header.Get("Mcp-Protocol-Version") == modern && r.method != "" {
		header["Mcp-Method"] = []string{r.method}
		if r.name != "" {
			header["Mcp-Name"] = []string{headerText(r.name)}
		}
	}
	resp, err := l.do(ctx, http.MethodPost, l.url, header, body)
	if err != nil {
		return nil, l.noticed(err, header)
	}
	if r.method == "initialize" {
		l.mu.Lock()
		l.session = resp.Header.Get("Mcp-Session-Id")
		l.mu.Unlock()
	}
	return resp, nil
}

// noticed sees when a server has forgotten the session.
func (l *streamable) noticed(err error, header http.Header) error {
	p := asProblem(err, true)
	missing := statusOf(err) == http.StatusNotFound ||
		statusOf(err) == http.StatusBadRequest && p.code == codeNoSession && strings.Contains(strings.ToLower(p.text), "session")
	if !missing || header.Get("Mcp-Session-Id") == "" {
		return err
	}
	gone := newProblem(SessionGone, false, err, "it has forgotten the session")
	l.mu.Lock()
	l.session = "" // there is nothing to end
	l.mu.Unlock()
	l.fail(gone)
	return gone
}

// answer reads the answer to a request, and what comes before it.
func (l *streamable) answer(ctx context.Context, resp *http.Response, r outgoing) (json.RawMessage, error) {
	switch kind := kindOf(resp); kind {
	case typeJSON:
		m, err := readMessage(ctx, resp, l.server.limit())
		if err != nil {
			return nil, err
		}
		if !m.isAnswer() || m.ID != nil && m.number() != r.id || m.ID == nil && m.Error == nil {
			return nil, newProblem(Malformed, true, nil, "its answer is one to something else")
		}
		return m.outcome()
	case typeEvents:
		return l.follow(ctx, resp, r)
	default:
		return nil, newProblem(Malformed, true, nil, "it answered with %s of the type %q", saying(resp.Status, 50), saying(kind, 100))
	}
}

// follow reads streams of events until the answer comes.
func (l *streamable) follow(ctx context.Context, resp *http.Response, r outgoing) (json.RawMessage, error) {
	s := &stream{link: l, until: r.id}
	for tries := 0; ; {
		before := s.last
		m, err := s.read(weighed(ctx, resp.Body, l.server.limit()))
		_ = resp.Body.Close()
		if err == nil {
			return m.outcome()
		}
		if ctx.Err() != nil {
			return nil, asProblem(ctx.Err(), true)
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		if s.last != before {
			tries = 0
		}
		if tries++; s.last == "" || tries > mostResumes || l.isModern() {
			return nil, newProblem(Closed, true, err, "it ended the stream without an answer")
		}
		if resp, err = l.resume(ctx, s); err != nil {
			p := *asProblem(err, true)
			p.sent, p.answered = true, false // whatever happened to this request, the first one was sent
			return nil, &p
		}
	}
}

// resume takes a stream of the legacy era up again after its last event.
func (l *streamable) resume(ctx context.Context, s *stream) (*http.Response, error) {
	pause := s.pause
	if pause == 0 {
		pause = firstPause
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	header := l.header(typeEvents)
	header["Last-Event-Id"] = []string{s.last}
	resp, err := l.do(ctx, http.MethodGet, l.url, header, nil)
	if err != nil {
		return nil, l.noticed(err, header)
	}
	if kind := kindOf(resp); kind != typeEvents {
		_ = resp.Body.Close()
		return nil, newProblem(Malformed, true, nil, "it goes on with the type %q", saying(kind, 100))
	}
	return resp, nil
}

// stream is what is known of a stream of events over the bodies that carry it.
type stream struct {
	link  *streamable
	until int64 // the request whose answer ends it; 0: none does
	last  string
	pause time.Duration
	seen  int   // messages
	size  int64 // bytes
}

// read reads one body up to the answer. io.EOF is its end before that.
func (s *stream) read(body io.Reader) (message, error) {
	limit := s.link.server.limit()
	next := events(iolimit.Watch(body, func(n int) error {
		s.size += int64(n)
		return nil
	}), limit)
	for {
		e, err := next()
		var p *problem
		if err != nil && !errors.As(err, &p) {
			return message{}, io.EOF // however it broke off
		}
		if err != nil {
			return message{}, err
		}
		if s.size > int64(limit)*streamCaps {
			return message{}, newProblem(TooLarge, true, nil, "it sent more than %d bytes before its answer", int64(limit)*streamCaps)
		}
		if e.id != "" {
			s.last = e.id
		}
		if e.retry > 0 {
			s.pause = min(e.retry, longestPause)
		}
		if len(e.data) == 0 || e.name != "" && e.name != "message" {
			continue
		}
		m, err := decode(e.data)
		if err != nil {
			return message{}, newProblem(Malformed, true, err, "it sent what is not a message of the protocol")
		}
		if m.isAnswer() && s.until != 0 && m.number() == s.until {
			return m, nil
		}
		if s.seen++; s.seen > mostUnasked {
			return message{}, newProblem(Flooded, true, nil, "it sent %d messages without a request", mostUnasked)
		}
		s.link.incoming(m)
	}
}

// incoming takes what is not an answer.
func (l *streamable) incoming(m message) {
	switch {
	case m.isAnswer():
	case m.ID != nil:
		l.aside(func() ([]byte, error) { return answer(m) })
	default:
		l.hear(m)
	}
}

// aside sends a message that nobody waits for.
func (l *streamable) aside(message func() ([]byte, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.asides >= mostAside {
		return
	}
	l.asides++
	l.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		if data, err := message(); err == nil {
			if resp, err := l.post(ctx, outgoing{}, data); err == nil {
				discard(resp)
			}
		}
		l.mu.Lock()
		l.asides--
		l.mu.Unlock()
	})
}

func (l *streamable) notify(ctx context.Context, method string, params json.RawMessage) error {
	data, err := encode(message{Method: method, Params: params})
	if err != nil {
		return err
	}
	resp, err := l.post(ctx, outgoing{method: method}, data)
	if err != nil {
		return err
	}
	discard(resp)
	return nil
}

// listen keeps one stream of notifications open: a request in the modern era, a GET
// before.
func (l *streamable) listen(ctx context.Context, r outgoing) error {
	if r.method != "" {
		_, err := l.call(ctx, r)
		return err
	}
	resp, err := l.do(ctx, http.MethodGet, l.url, l.header(typeEvents), nil)
	if status := statusOf(err); status >= 400 && status < 500 {
		return errNoStream // 405 is what the protocol has for it, others are seen
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kindOf(resp) != typeEvents {
		return errNoStream
	}
	_, err = (&stream{link: l}).read(resp.Body)
	return err
}

// close ends the session, where there is one.
func (l *streamable) close() error {
	l.fail(newProblem(Closed, true, nil, "the connection was closed"))
	l.tasks.Wait()
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	header := l.header(typeJSON)
	l.mu.Lock()
	l.session = ""
	l.mu.Unlock()
	resp, err := l.do(ctx, http.MethodDelete, l.url, header, nil)
	if status := statusOf(err); status >= 400 && status < 500 {
		return nil // it does not offer that, or has forgotten the session
	}
	if err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	discard(resp)
	return nil
}

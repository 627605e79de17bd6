package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// request is one that a guest makes as a whole. Its body lies behind the message or,
// where there is More, is written to the stream until that is shut.
type request struct {
	Method   string      `json:"method"`
	URL      string      `json:"url"`
	Headers  [][2]string `json:"headers"`
	Redirect string      `json:"redirect"` // "follow", "manual" or "error"
	More     bool        `json:"more"`
	Later    bool        `json:"later"`  // the answer is the stream; net.head gives the head
	Length   int64       `json:"length"` // of that body; negative: not known
}

// answerHead is the head of an answer, and the stream that has its body.
type answerHead struct {
	Stream     int         `json:"stream"`
	Status     int         `json:"status"`
	StatusText string      `json:"text"`
	URL        string      `json:"url"`
	Redirected bool        `json:"redirected"`
	Headers    [][2]string `json:"headers"`
}

// headed is what came of a request.
type headed struct {
	head *answerHead
	fail *failure
}

// maxRedirects is how many a request follows, as in browsers.
const maxRedirects = 20

// ownHeaders are made by whoever sends the request.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// fetch makes a request, and gives the head of its answer; where its body is still to be
// written, the stream.
func (t *Table) fetch(ctx context.Context, m message) (any, *failure) {
	if f := t.reserve(); f != nil {
		return nil, f
	}
	s := t.newStream("", 0)
	s.head = make(chan headed, 1)
	var going context.Context
	going, s.cancel = context.WithCancel(t.ctx)
	req, f := s.request(going, m)
	if f != nil {
		t.unreserve()
		s.cancel()
		return nil, f
	}
	if !t.add(s) {
		return nil, &failure{Kind: kindReset}
	}
	number := s.number
	if !t.goOn(func() { s.carry(req, m.Redirect) }) {
		t.remove(number)
		return nil, &failure{Kind: kindReset}
	}
	if m.More || m.Later {
		return map[string]int{"stream": number}, nil
	}
	return s.answerHead(ctx)
}

// request is the message's, with what it may not say itself left out.
func (s *stream) request(ctx context.Context, m message) (*http.Request, *failure) {
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &failure{kindInvalid, "it is not a URL of http or https"}
	}
	body := io.Reader(bytes.NewReader(m.bytes))
	switch {
	case m.More:
		body = struct{ io.Reader }{s.far} // it is not closed
	case len(m.bytes) == 0:
		body = nil
	}
	u.Fragment = ""
	req, err := http.NewRequestWithContext(ctx, m.Method, u.String(), body)
	if err != nil {
		return nil, &failure{kindInvalid, "the method or the URL is none"}
	}
	if m.More && m.Length >= 0 {
		req.ContentLength = m.Length
	}
	for _, h := range m.Headers {
		name := http.CanonicalHeaderKey(h[0])
		if !httpguts.ValidHeaderFieldName(h[0]) || !httpguts.ValidHeaderFieldValue(h[1]) {
			return nil, &failure{kindInvalid, "a header's name or value has characters that it may not have"}
		}
		if !slices.Contains(ownHeaders, name) {
			req.Header.Add(name, h[1])
		}
	}
	return req, nil
}

// carry makes the request, tells of the head of its answer, and passes the body on.
func (s *stream) carry(req *http.Request, redirect string) {
	resp, err := s.client(redirect).Do(req)
	if err != nil {
		s.head <- headed{fail: s.table.failureOf(unwrapped(err))}
		s.far.in.leave(io.ErrClosedPipe)
		s.far.out.finish(io.ErrUnexpectedEOF)
		return
	}
	defer resp.Body.Close()
	s.head <- headed{head: s.headOf(resp, req.URL)}
	_, err = io.Copy(s.far, resp.Body)
	if err == nil {
		err = io.EOF
	}
	s.far.in.leave(io.ErrClosedPipe) // a body that nobody wanted
	s.far.out.finish(err)
}

// unwrapped is what a client's error is about.
func unwrapped(err error) error {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	var f *fault.Error
	if !errors.As(err, &f) && errors.Is(err, errRedirects) {
		return fault.New(fault.Denied, "%s", err.Error())
	}
	return err
}

var errRedirects = errors.New("the answer redirects, which the program did not want, or on and on")

// client speaks to the proxy as if each origin were there.
func (s *stream) client(redirect string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:    func(ctx context.Context, _, to string) (net.Conn, error) { return s.dial(ctx, to, false) },
			DialTLSContext: func(ctx context.Context, _, to string) (net.Conn, error) { return s.dial(ctx, to, true) },
			// Each request is on a connection of its own: what connects to hosts is the proxy.
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case redirect == "manual":
				return http.ErrUseLastResponse
			case redirect == "error" || len(via) > maxRedirects:
				return errRedirects
			}
			for _, r := range append(via[1:len(via):len(via)], req) {
				if originOf(r.URL) != originOf(via[0].URL) {
					leaveBehind(req.Header)
				}
			}
			return keepMethod(req, via[len(via)-1])
		},
	}
}

// keepMethod has a redirect followed with the method and the body of the last request,
// where fetch keeps them: net/http keeps them only for 307 and 308.
func keepMethod(req, last *http.Request) error {
	switch req.Response.StatusCode {
	case http.StatusSeeOther:
		return nil
	case http.StatusMovedPermanently, http.StatusFound:
		if last.Method == http.MethodPost {
			return nil
		}
	}
	req.Method = last.Method
	if last.Body == nil || last.Body == http.NoBody || req.Body != nil && req.Body != http.NoBody {
		return nil
	}
	if last.GetBody == nil { // it came in pieces, which are gone
		return http.ErrUseLastResponse
	}
	body, err := last.GetBody()
	if err != nil {
		return err
	}
	req.Body, req.GetBody, req.ContentLength = body, last.GetBody, last.ContentLength
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Location", "Content-Type"} {
		if values, ok := last.Header[name]; ok {
			req.Header[name] = values
		}
	}
	return nil
}

// leaveBehind takes out what says to one origin who asks, as fetch does: net/http would
// show it to other ports, schemes and names below the host's.
func leaveBehind(h http.Header) {
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "Referer"} {
		h.Del(name)
	}
}

// originOf is a URL's; it is compared.
func originOf(u *url.URL) string {
	scheme, host, port, err := egress.Origin(u)
	if err != nil {
		return u.Scheme + "://" + u.Host // the proxy refuses it
	}
	return egress.Authority(scheme, host, port) + " " + scheme
}

// dial opens a connection to the proxy.
func (s *stream) dial(ctx context.Context, to string, tls bool) (net.Conn, error) {
	host, digits, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	t := s.table
	end, err := t.dial(ctx, host, port, tls)
	if err != nil {
		return nil, err
	}
	near, far := newPipe(t.config.Buffer)
	near.onClose = end
	if !t.goOn(func() {
		defer far.Close()
		t.config.Proxy.ServeOrigin(t.ctx, far, host, port, tls)
	}) {
		end()
		return nil, context.Canceled
	}
	return near, nil
}

// headOf is the head of an answer to what was asked first.
func (s *stream) headOf(resp *http.Response, asked *url.URL) *answerHead {
	at := *resp.Request.URL
	at.User, at.Fragment = nil, ""
	h := &answerHead{Stream: s.number, Status: resp.StatusCode, URL: at.String(), Redirected: at.String() != asked.String(), Headers: [][2]string{}}
	_, h.StatusText, _ = strings.Cut(resp.Status, " ")
	var names []string
	for name := range resp.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range resp.Header[name] {
			h.Headers = append(h.Headers, [2]string{strings.ToLower(name), value})
		}
	}
	return h
}

// answerHead waits for the head. Who stops waiting for it gives the request up.
func (s *stream) answerHead(ctx context.Context) (any, *failure) {
	if s.head == nil {
		return nil, &failure{kindInvalid, "the stream is not a request"}
	}
	select {
	case h := <-s.head:
		s.head <- h // whoever asks again is told again
		if h.fail != nil {
			s.table.remove(s.number)
			return nil, h.fail
		}
		return h.head, nil
	case <-ctx.Done():
		s.table.remove(s.number)
		return nil, s.table.failureOf(context.Cause(ctx))
	}
}

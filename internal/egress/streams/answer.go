package streams

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"syscall"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// The kinds of failure, as guests know them.
const (
	kindDenied      = "denied"      // no rule allows it, or allows it no more
	kindNoNetwork   = "no_network"  // nothing is allowed at all
	kindUnknown     = "unknown"     // there is no such host
	kindRefused     = "refused"     // nobody listens there
	kindUnreachable = "unreachable" // it did not answer
	kindCertificate = "certificate" // it is not who it should be
	kindTLS         = "tls"         // it does not speak TLS
	kindTimeout     = "timeout"
	kindExhausted   = "exhausted" // a limit is reached
	kindReset       = "reset"     // the stream is not there any more
	kindClosed      = "closed"    // the other side has closed it
	kindInvalid     = "invalid"   // the message is none
)

// failure is what a message is answered with that failed.
type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message,omitempty"`
}

// message is what a guest asks: a line of JSON, and bytes behind it.
type message struct {
	Op      string   `json:"op"`
	Stream  int      `json:"stream"`
	Streams []int    `json:"streams"`
	Host    string   `json:"host"`
	Port    int      `json:"port"`
	TLS     bool     `json:"tls"`
	At      int64    `json:"at"`
	Max     int      `json:"max"`
	Timeout *float64 `json:"timeout"` // seconds; nil: none
	request
	bytes []byte
}

// The bounds of messages: what is read at once, and for how long anything waits.
const (
	maxRead    = 1 << 20
	maxTimeout = time.Hour
)

// rawHead is the line before the bytes of an answer that is not JSON alone.
const rawHead = `{"value":{}}` + "\n"

// raw is such an answer: its bytes lie behind headroom free ones, for that line.
type raw []byte

// Answer answers a message: with a line of JSON and, where bytes were read, a line feed and
// these. It waits until the message's own time is up, or ctx ends: the answer to what was
// waited for is then that it took too long. All that is wrong with a message or a stream is
// an answer, too. The answer is the caller's to read, and not to change.
func (t *Table) Answer(ctx context.Context, body []byte) []byte {
	value, f := t.answer(ctx, body)
	if b, ok := value.(raw); ok {
		copy(b, rawHead)
		return b
	}
	var out struct {
		Value any      `json:"value,omitempty"`
		Error *failure `json:"error,omitempty"`
	}
	out.Value, out.Error = value, f
	answer, err := json.Marshal(out)
	if err != nil { // never: all of it is ours
		answer = []byte(`{"error":{"kind":"invalid"}}`)
	}
	return answer
}

func (t *Table) answer(ctx context.Context, body []byte) (any, *failure) {
	var m message
	line, rest, _ := bytes.Cut(body, []byte("\n"))
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, &failure{kindInvalid, "the message cannot be read"}
	}
	m.bytes = rest
	if t.config.Proxy == nil {
		return nil, t.noNetwork()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if m.Timeout != nil {
		ctx, cancel = context.WithTimeout(ctx, min(time.Duration(min(max(*m.Timeout, 0), 1e6)*1e9), maxTimeout))
		defer cancel()
	}
	switch m.Op {
	case "net.resolve":
		return t.resolve(m)
	case "net.open":
		return t.open(ctx, m)
	case "net.fetch":
		return t.fetch(ctx, m)
	case "net.poll":
		return t.poll(ctx, m)
	case "net.close":
		t.remove(m.Stream)
		return struct{}{}, nil
	}
	s := t.find(m.Stream)
	if s == nil {
		return nil, &failure{kindReset, "the connection is not there any more: it was idle for long, or the session went on in another process"}
	}
	s.touch()
	defer s.touch()
	return s.answer(ctx, m)
}

func (s *stream) answer(ctx context.Context, m message) (any, *failure) {
	switch m.Op {
	case "net.tls":
		return s.greet(ctx, m.Host)
	case "net.read":
		return s.answerRead(ctx, m)
	case "net.write":
		if s.head == nil && !s.start() {
			return nil, &failure{Kind: kindReset}
		}
		n, err := s.put(ctx, m.At, m.bytes)
		if err != nil && n == 0 {
			return nil, s.table.failureOf(err)
		}
		return map[string]int{"written": n}, nil
	case "net.shut":
		if s.head != nil { // the body of a request has ended; a request ends by itself
			s.near.out.finish(io.EOF)
		}
		return struct{}{}, nil
	case "net.head":
		return s.answerHead(ctx)
	}
	return nil, &failure{kindInvalid, "there is no such message"}
}

func (s *stream) answerRead(ctx context.Context, m message) (any, *failure) {
	if m.Max < 1 || m.Max > maxRead {
		m.Max = maxRead
	}
	b, err := s.take(ctx, m.At, m.Max)
	if err == io.EOF {
		b, err = make([]byte, headroom), nil
	}
	if err != nil {
		return nil, s.table.failureOf(err)
	}
	return raw(b), nil
}

// noNetwork is the one answer where nothing may leave.
func (t *Table) noNetwork() *failure {
	return &failure{kindNoNetwork, "this session has no network: a person allows hosts " + t.config.Allow}
}

// guestName is what guests take for their own name (guest/python/_paddock_socket.py):
// Python's uuid1 asks for its address. Nothing has to be refused for that.
const guestName = "sandbox"

// resolve makes an address up for a host that a program may know of.
func (t *Table) resolve(m message) (any, *failure) {
	name, err := egress.Host(m.Host)
	if err != nil {
		return nil, t.failureOf(err)
	}
	if !t.config.Proxy.Knows(name) {
		if name == guestName {
			return map[string][]string{"addresses": {"127.0.0.1"}}, nil
		}
		port := m.Port
		if port < 1 || port > 65535 {
			port = 443
		}
		end, err := t.dial(t.ctx, name, port, port == 443)
		if err != nil {
			return nil, t.failureOf(err)
		}
		end() // it is allowed meanwhile
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		addr = t.addressOf(name)
	}
	return map[string][]string{"addresses": {addr.String()}}, nil
}

// dial has a connection made ahead.
func (t *Table) dial(ctx context.Context, host string, port int, tls bool) (end func(), err error) {
	end, err = t.config.Proxy.Dial(ctx, host, port, tls)
	if err != nil && fault.KindOf(err) == fault.Denied && t.config.Proxy.Policy().Empty() {
		return nil, errNoNetwork
	}
	return end, err
}

var errNoNetwork = errors.New("nothing is allowed to leave the session")

// open makes a stream, and has a connection made to the host.
func (t *Table) open(ctx context.Context, m message) (any, *failure) {
	name, err := egress.Host(m.Host)
	if err != nil {
		return nil, t.failureOf(err)
	}
	if f := t.reserve(); f != nil {
		return nil, f
	}
	end, err := t.dial(ctx, name, m.Port, m.TLS)
	if err != nil {
		t.unreserve()
		return nil, t.failureOf(err)
	}
	s := t.newStream(name, m.Port)
	s.tls, s.end = m.TLS, end
	if !t.add(s) {
		return nil, &failure{Kind: kindReset}
	}
	return map[string]int{"stream": s.number}, nil
}

// greet has TLS be spoken to the host, before anything was written. A name that the host
// should have is its own: the proxy asks for no other.
func (s *stream) greet(ctx context.Context, name string) (any, *failure) {
	s.begin.Lock()
	defer s.begin.Unlock()
	switch {
	case s.tls:
		return struct{}{}, nil
	case s.began:
		return nil, &failure{kindTLS, "TLS begins before anything else is sent"}
	}
	host := s.host
	if named, err := egress.Host(name); name != "" && (err != nil || named != host) {
		return nil, &failure{kindCertificate, "a connection to " + host + " cannot be one to another host"}
	}
	s.end()
	s.end = func() {}
	end, err := s.table.dial(ctx, host, s.port, true)
	if err != nil {
		return nil, s.table.failureOf(err)
	}
	s.tls, s.end = true, end
	return struct{}{}, nil
}

// poll waits until one of some streams has something to read, or its end.
func (t *Table) poll(ctx context.Context, m message) (any, *failure) {
	for {
		readable := []int{}
		cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
		for _, number := range m.Streams[:min(len(m.Streams), t.config.Open)] {
			s := t.find(number)
			if s == nil {
				readable = append(readable, number)
				continue
			}
			ready, changed := s.near.in.ready()
			if ready {
				readable = append(readable, number)
			}
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(changed)})
		}
		if len(readable) > 0 || ctx.Err() != nil {
			return map[string][]int{"readable": readable}, nil
		}
		if k, _, _ := reflect.Select(cases); k == 0 {
			return map[string][]int{"readable": readable}, nil
		}
	}
}

// failureOf is an error as guests know it.
func (t *Table) failureOf(err error) *failure {
	if errors.Is(err, errNoNetwork) {
		return t.noNetwork()
	}
	f := &failure{Kind: kindOf(err)}
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		f.Message = known.Message
		if known.Hint != "" {
			f.Message += ": " + known.Hint
		}
	case f.Kind == kindReset:
		f.Message = "the connection went on without the program"
	case f.Kind == kindClosed:
		f.Message = "the connection has been closed"
	case f.Kind == kindTimeout:
		f.Message = "timed out"
	}
	return f
}

func kindOf(err error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var timeout net.Error
	switch {
	case errors.Is(err, errReset):
		return kindReset
	case errors.As(err, &certificate), errors.As(err, &host):
		return kindCertificate
	case errors.As(err, &record), errors.As(err, &alert):
		return kindTLS
	case errors.As(err, &dns) && dns.IsNotFound:
		return kindUnknown
	case errors.Is(err, syscall.ECONNREFUSED):
		return kindRefused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return kindTimeout
	case errors.Is(err, io.ErrClosedPipe), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled):
		return kindClosed
	}
	switch fault.KindOf(err) {
	case fault.Denied:
		return kindDenied
	case fault.Exhausted:
		return kindExhausted
	case fault.Invalid:
		return kindInvalid
	}
	return kindUnreachable
}

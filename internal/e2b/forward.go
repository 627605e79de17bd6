package e2b

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"paddock/internal/fault"
	box "paddock/internal/sandbox"
)

// The ports that clients name: the daemon's, which is served by the machine's agent and not at
// a port, and the code interpreter's.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

// The headers by which clients name a sandbox and a port.
const idHeader, portHeader = "E2b-Sandbox-Id", "E2b-Sandbox-Port"

// FilesPath is where signed requests for files come, below no prefix.
const FilesPath = "/files"

// ForSandbox reports whether a request is for a sandbox, which asks for its own token.
func ForSandbox(r *http.Request) bool {
	return r.Header.Get(idHeader) != "" || r.URL.Path == FilesPath
}

// visit is a request to a sandbox that was let in.
type visit struct {
	ctx  context.Context
	b    *sandbox
	port uint16
}

type visitKey struct{}

// serveSandbox passes a request on to the sandbox that it names.
func (s *Server) serveSandbox(w http.ResponseWriter, r *http.Request) {
	b, port, err := s.target(r)
	if err == nil {
		err = s.permit(r, b.id, port)
	}
	if err == nil {
		err = s.config.Alive(b.owner)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if port == envdPort && strings.HasPrefix(r.URL.Path, "/paddock/") {
		fail(w, http.StatusNotFound, "there is nothing here")
		return
	}
	release, err := s.config.Admit(b.owner)
	if err != nil {
		failWith(w, err)
		return
	}
	defer release()
	if err := s.awake(r.Context(), b); err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx, leave, err := b.enter(r.Context())
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer leave()
	v := &visit{ctx, b, port}
	r = r.WithContext(context.WithValue(ctx, visitKey{}, v))
	switch port {
	case envdPort:
		s.serveDaemon(w, r, b)
	case interpreterPort:
		s.serveInterpreter(w, r, b)
	default:
		s.forward.ServeHTTP(w, r)
	}
}

// serveInterpreter answers E2B's code interpreter.
func (s *Server) serveInterpreter(w http.ResponseWriter, _ *http.Request, _ *sandbox) {
	fail(w, http.StatusNotImplemented, "the code interpreter is not offered: run programs as commands, such as python3 FILE")
}

// serveDaemon passes a request on to the daemon, and tells of what is done there.
func (s *Server) serveDaemon(w http.ResponseWriter, r *http.Request, b *sandbox) {
	e, err := eventOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, Text(err))
		return
	}
	if e == nil {
		s.forward.ServeHTTP(w, r)
		return
	}
	e.Owner, e.Session = b.owner, b.session
	if e.Action == Starting {
		if err := s.config.Told(r.Context(), *e); err != nil {
			failWith(w, err)
			return
		}
	}
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		e.Status = seen.status
		if err := s.config.Told(context.WithoutCancel(r.Context()), *e); err != nil {
			s.config.Log.Warn("what a client did in a sandbox is not recorded", "sandbox", b.id, "cause", err)
		}
	}()
	s.forward.ServeHTTP(seen, r)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// maxStart bounds the message by which a process is started.
const maxStart = 8 << 20

// eventOf is what a request does that is to be recorded; nil: nothing.
func eventOf(r *http.Request) (*Event, error) {
	q := r.URL.Query()
	switch r.URL.Path {
	case FilesPath:
		e := &Event{Action: Reading, Target: q.Get("path")}
		if r.Method == http.MethodPost {
			e.Action = Writing
		}
		return e, nil
	case "/process.Process/Start":
		return startEvent(r)
	case "/filesystem.Filesystem/MakeDir", "/filesystem.Filesystem/Remove", "/filesystem.Filesystem/Move":
		var call struct{ Path, Source, Destination string }
		text, err := keepBody(r)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(text, &call) // the daemon refuses what is none
		if call.Source != "" {
			return &Event{Action: Writing, Target: call.Source + " to " + call.Destination}, nil
		}
		return &Event{Action: Writing, Target: call.Path}, nil
	}
	return nil, nil
}

// keepBody reads a body, which is there for others as well.
func keepBody(r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxStart+1))
	if err == nil && len(text) > maxStart {
		err = fmt.Errorf("it has more than %d bytes", maxStart)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the request's body cannot be read: %v", err).WithCause(err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return text, nil
}

// startEvent reads which process is to be started.
func startEvent(r *http.Request) (*Event, error) {
	text, err := keepBody(r)
	if err != nil {
		return nil, err
	}
	var call struct {
		Process struct {
			Cmd  string   `json:"cmd"`
			Args []string `json:"args"`
		} `json:"process"`
	}
	if len(text) >= 5 {
		size := int(binary.BigEndian.Uint32(text[1:]))
		_ = json.Unmarshal(text[5:min(len(text), 5+size)], &call) // the daemon refuses what is none
	}
	p := call.Process
	e := &Event{Action: Starting, Code: strings.Join(append([]string{p.Cmd}, p.Args...), " ")}
	if p.Cmd == "/bin/bash" && len(p.Args) == 3 && p.Args[1] == "-c" {
		e.Code = p.Args[2] // as clients run commands
	}
	return e, nil
}

// errBadToken says that a request has no token of its sandbox.
var errBadToken = fault.New(fault.Denied, "unauthorized access, please provide a valid access token or method signing if supported")

// errExpired says that a signature was valid.
var errExpired = fault.New(fault.Denied, "signature is already expired")

// target finds the sandbox and the port of a request.
func (s *Server) target(r *http.Request) (*sandbox, uint16, error) {
	id := r.Header.Get(idHeader)
	if id == "" {
		b, err := s.signedFor(r)
		return b, envdPort, err
	}
	port := uint64(envdPort)
	if text := r.Header.Get(portHeader); text != "" {
		var err error
		if port, err = strconv.ParseUint(text, 10, 16); err != nil || port == 0 {
			return nil, 0, fault.New(fault.Invalid, "%q is not a port", text)
		}
	}
	id, _, _ = strings.Cut(id, "-")
	b := s.find(id)
	if b != nil {
		return b, uint16(port), nil
	}
	if err := s.permit(r, id, uint16(port)); err != nil {
		return nil, 0, err // as of one that is there
	}
	return nil, 0, errGone
}

// signedFor finds the sandbox of a request for a file that names none: by its token, or by what
// it is signed with.
func (s *Server) signedFor(r *http.Request) (*sandbox, error) {
	q := r.URL.Query()
	token, signed := r.Header.Get("X-Access-Token"), q.Get("signature")
	for _, b := range s.list() {
		if b.isSnapshot() {
			continue
		}
		own := s.envdToken(b.id)
		if token != "" && same(token, own) || token == "" && signed != "" && same(signed, signature(q, operationOf(r), own)) {
			return b, nil
		}
	}
	return nil, errBadToken
}

// permit decides whether a request has what opens its sandbox, which need not be there any
// more.
func (s *Server) permit(r *http.Request, id string, port uint16) error {
	own := s.envdToken(id)
	if port != envdPort {
		if same(r.Header.Get("E2b-Traffic-Access-Token"), s.trafficToken(id)) || same(r.Header.Get("X-Access-Token"), own) {
			return nil
		}
		return errBadToken
	}
	if r.URL.Path == "/health" || same(r.Header.Get("X-Access-Token"), own) {
		return nil
	}
	q := r.URL.Query()
	if r.URL.Path != FilesPath || q.Get("signature") == "" || !same(q.Get("signature"), signature(q, operationOf(r), own)) {
		return errBadToken
	}
	if expired(q, time.Now()) {
		return errExpired
	}
	return nil
}

// awake has the sandbox's machine be up: one that is paused where its client said that traffic
// wakes it, and one that another process of paddock has saved.
func (s *Server) awake(ctx context.Context, b *sandbox) error {
	r := b.now()
	if r.Paused && (!r.AutoResume || r.Cold) {
		return errGone
	}
	if r.Paused {
		_, err := b.resume(ctx, r.Timeout)
		return err
	}
	return b.boot(ctx)
}

// refuse answers a request to a sandbox with an error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errGone), fault.KindOf(err) == fault.NotFound:
		id := r.Header.Get(idHeader)
		writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
	case errors.Is(err, errBadToken), errors.Is(err, errExpired):
		fail(w, http.StatusUnauthorized, Text(err))
	default:
		s.logFailure(r, err)
		failWith(w, err)
	}
}

// newForward passes requests on, each over a connection of its own.
func (s *Server) newForward() http.Handler {
	transport := &http.Transport{DialContext: s.dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			v := p.In.Context().Value(visitKey{}).(*visit)
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "sandbox"
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what Go finds odd
			if v.port != envdPort {
				p.Out.Host = net.JoinHostPort("localhost", strconv.Itoa(int(v.port)))
			}
			for _, name := range []string{"X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token", idHeader, portHeader} {
				p.Out.Header.Del(name)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if cause := context.Cause(r.Context()); errors.Is(cause, errGone) {
				err = errGone
			}
			v := r.Context().Value(visitKey{}).(*visit)
			if fault.KindOf(err) == fault.Unavailable && v.port != envdPort {
				writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": v.b.id, "message": "The sandbox is running but port is not open", "port": v.port, "code": http.StatusBadGateway})
				return
			}
			if fault.KindOf(err) == fault.NotFound {
				v.b.letGo() // its machine has ended by itself
			}
			s.refuse(w, r, err)
		},
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
}

// dial connects to where the request goes that ctx is of.
func (s *Server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	v := ctx.Value(visitKey{}).(*visit)
	// The transport's own goes on when the request has ended.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	if v.port == envdPort {
		return s.dialEnvd(ctx, v.b)
	}
	stream, err := s.config.Sessions.Dial(ctx, v.b.owner, v.b.session, v.port)
	if err != nil {
		return nil, err
	}
	return &conn{stream}, nil
}

func (s *Server) dialEnvd(ctx context.Context, b *sandbox) (net.Conn, error) {
	stream, err := s.config.Sessions.DialEnvd(ctx, b.owner, b.session)
	if err != nil {
		return nil, err
	}
	return &conn{stream}, nil
}

// conn is a stream as a connection, without deadlines: requests end it.
type conn struct{ box.Stream }

type address struct{}

func (address) Network() string { return "paddock" }
func (address) String() string  { return "sandbox" }

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

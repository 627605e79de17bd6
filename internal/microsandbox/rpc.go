package microsandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/jsonbound"
	"paddock/internal/membudget"
	"paddock/internal/session"
)

// maxRequest bounds a request's body, in bytes: a program of a megabyte in JSON.
const maxRequest = 8 << 20

// Bounds of what is made of a body: how deep it is nested, and how many parts it has.
// decoded is how many times its size a body takes with what is made of it, which is not
// counted of small ones.
const (
	maxDepth, maxParts = 64, 10_000
	decoded            = 4
	small              = 64 << 10
)

// maxTimeout bounds a timeout, in seconds: a week.
const maxTimeout = 7 * 86400

// Codes of JSON-RPC errors.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeInternal = -32603
	codeDenied   = -32002 // whoever asks may not
)

// RPC serves microsandbox's JSON-RPC: sandbox.start, sandbox.stop,
// sandbox.repl.run, sandbox.command.run and sandbox.metrics.get. owner says whose
// request it is; memory bounds what bodies take while they are read and served.
func (s *Service) RPC(owner func(*http.Request) (session.Owner, error), memory *membudget.Budget) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "this is JSON-RPC: use POST", http.StatusMethodNotAllowed)
			return
		}
		who, denied := owner(r)
		if length := r.ContentLength; denied == nil && (length < 0 || length > small) {
			if length < 0 || length > maxRequest {
				length = maxRequest
			}
			release, err := memory.Acquire(r.Context(), string(who), decoded*length)
			if err != nil {
				reply(w, nil, nil, errorOf(err))
				return
			}
			defer release()
		}
		most := int64(maxRequest)
		if denied != nil { // what they ask is looked at, for the error's sake
			most = small
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		if err != nil {
			reply(w, nil, nil, &rpcError{Code: codeRequest, Message: "the request cannot be read, or has more than 8 MiB"})
			return
		}
		req, mistake := read(body)
		if mistake != nil {
			reply(w, req.ID, nil, mistake)
			return
		}
		var result any
		if err = denied; err == nil {
			result, err = s.call(r.Context(), who, req)
		}
		if req.ID == nil { // a notification
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err != nil {
			reply(w, req.ID, nil, errorOf(err))
			return
		}
		reply(w, req.ID, result, nil)
	})
}

// read reads one request.
func read(body []byte) (req rpcRequest, mistake *rpcError) {
	if err := jsonbound.Check(body, maxDepth, maxParts); err != nil {
		return req, &rpcError{Code: codeRequest, Message: "the request costs more than it says: " + err.Error()}
	}
	if !json.Valid(body) {
		return req, &rpcError{Code: codeParse, Message: "the request is not JSON"}
	}
	err := json.Unmarshal(body, &req)
	if id := bytes.TrimSpace(req.ID); len(id) > 0 && (id[0] == '{' || id[0] == '[' || id[0] == 't' || id[0] == 'f') {
		req.ID, err = nil, errors.New("it is not an id")
	}
	if err != nil || req.Version != "2.0" || req.Method == "" {
		return req, &rpcError{Code: codeRequest, Message: `a request is one object with "jsonrpc": "2.0", a method, params and an id that is a text or a number`}
	}
	return req, nil
}

// Health answers that the server works.
func Health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"message":"Service is healthy"}`+"\n") // a client that is gone needs no answer
}

type rpcRequest struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    *fault.Problem `json:"data,omitempty"`
}

func reply(w http.ResponseWriter, id json.RawMessage, result any, failed *rpcError) {
	answer := struct {
		Version string          `json:"jsonrpc"`
		Result  any             `json:"result,omitempty"`
		Error   *rpcError       `json:"error,omitempty"`
		ID      json.RawMessage `json:"id"`
	}{"2.0", result, failed, id}
	if id == nil {
		answer.ID = json.RawMessage("null")
	}
	w.Header().Set("Content-Type", "application/json")
	to := json.NewEncoder(w)
	to.SetEscapeHTML(false)
	_ = to.Encode(answer) // likewise
}

// methods are what hints call by the names of the MCP tools.
var methods = strings.NewReplacer("sandbox_start", "sandbox.start", "sandbox_stop", "sandbox.stop", "sandbox_run_code", "sandbox.repl.run",
	"sandbox_run_command", "sandbox.command.run", "sandbox_get_metrics", "sandbox.metrics.get")

// errUnknown is for a method that is not there.
var errUnknown = errors.New("there is no such method")

func errorOf(err error) *rpcError {
	if errors.Is(err, errUnknown) {
		return &rpcError{Code: codeMethod, Message: "there is no such method; there are sandbox.start, sandbox.stop, sandbox.repl.run, sandbox.command.run and sandbox.metrics.get"}
	}
	p := fault.ProblemOf(err)
	p.Hint = methods.Replace(p.Hint)
	code := codeInternal
	switch fault.KindOf(err) {
	case fault.Invalid:
		code = codeParams
	case fault.Denied:
		code = codeDenied
	}
	return &rpcError{Code: code, Message: p.Line(), Data: &p}
}

// params are those of all methods.
type params struct {
	Sandbox   string     `json:"sandbox"`
	Namespace string     `json:"namespace"`
	Config    *rpcConfig `json:"config"`
	Language  string     `json:"language"`
	Code      string     `json:"code"`
	Command   string     `json:"command"`
	Args      []string   `json:"args"`
	Timeout   float64    `json:"timeout"` // seconds
}

// rpcConfig is a sandbox's. Fields that paddock has no use for are not read.
type rpcConfig struct {
	Image   string   `json:"image"`
	Memory  int64    `json:"memory"`
	CPUs    int64    `json:"cpus"`
	Volumes []string `json:"volumes"`
	Ports   []string `json:"ports"`
	Envs    []string `json:"envs"`
	Shell   string   `json:"shell"`

	Scripts map[string]string `json:"scripts"`
}

func (s *Service) call(ctx context.Context, owner session.Owner, req rpcRequest) (any, error) {
	var p params
	if raw := bytes.TrimSpace(req.Params); len(raw) > 0 {
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, mistyped(err)
		}
	}
	name := Name{p.Namespace, p.Sandbox}
	switch req.Method {
	case "sandbox.start":
		var c *Settings
		if p.Config != nil {
			c = &Settings{Image: p.Config.Image, Memory: p.Config.Memory, CPUs: p.Config.CPUs, Volumes: p.Config.Volumes, Ports: p.Config.Ports, Envs: p.Config.Envs, Shell: p.Config.Shell, Scripts: p.Config.Scripts}
		}
		if _, err := s.Start(ctx, owner, name, c); err != nil {
			return nil, err
		}
		return "Sandbox " + p.Sandbox + " started successfully", nil
	case "sandbox.stop":
		if _, err := s.Stop(ctx, owner, name); err != nil {
			return nil, err
		}
		return "Sandbox " + p.Sandbox + " stopped successfully", nil
	case "sandbox.repl.run", "sandbox.command.run":
		return s.runCall(ctx, owner, name, req.Method == "sandbox.command.run", p)
	case "sandbox.metrics.get":
		all, err := s.Metrics(ctx, owner, p.Namespace, p.Sandbox)
		if err != nil {
			return nil, err
		}
		return map[string]any{"sandboxes": TellMetrics(all)}, nil
	}
	return nil, errUnknown
}

// mistyped says which of the params is of the wrong type.
func mistyped(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) || t.Field == "" {
		return fault.New(fault.Invalid, "params is an object")
	}
	return fault.New(fault.Invalid, "%s cannot be %s", t.Field, t.Value).WithHint("docs/linux.md shows what the methods take")
}

func (s *Service) runCall(ctx context.Context, owner session.Owner, name Name, command bool, p params) (any, error) {
	if !(p.Timeout >= 0 && p.Timeout <= maxTimeout) {
		return nil, fault.New(fault.Invalid, "the timeout lies between 0 and %d seconds", maxTimeout)
	}
	req := Request{Timeout: time.Duration(p.Timeout * float64(time.Second))}
	if command {
		if req.Command, req.Args = p.Command, p.Args; p.Command == "" {
			return nil, fault.New(fault.Invalid, "no command is given")
		}
	} else {
		req.Language, req.Code = p.Language, p.Code
	}
	res, err := s.Run(ctx, owner, name, req)
	if err != nil {
		return nil, err
	}
	if command {
		return TellCommand(p.Command, p.Args, res), nil
	}
	return replyCode(p.Language, res), nil
}

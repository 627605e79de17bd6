package envd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The protocol is Connect with JSON (https://connectrpc.com/docs/protocol), without
// compression: a call is one message each way; a stream's messages are a flag byte, a length
// and JSON, and its last one says how it ended.

// maxMessage bounds a message of a client, in bytes.
const maxMessage = 64 << 20

// The codes of errors that this package gives.
const (
	invalidArgument    = "invalid_argument"
	unauthenticated    = "unauthenticated"
	notFound           = "not_found"
	alreadyExists      = "already_exists"
	failedPrecondition = "failed_precondition"
	resourceExhausted  = "resource_exhausted"
	deadlineExceeded   = "deadline_exceeded"
	internalError      = "internal"
)

// statuses are the statuses of calls that failed, as Connect has them.
var statuses = map[string]int{
	invalidArgument: http.StatusBadRequest, unauthenticated: http.StatusUnauthorized, notFound: http.StatusNotFound,
	alreadyExists: http.StatusConflict, failedPrecondition: http.StatusBadRequest, resourceExhausted: http.StatusTooManyRequests,
	deadlineExceeded: http.StatusGatewayTimeout,
}

type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *connectError) Error() string { return e.Code + ": " + e.Message }

func failed(code, format string, args ...any) *connectError {
	return &connectError{code, fmt.Sprintf(format, args...)}
}

// unary makes a handler of a function that answers a call.
func unary[Q, A any](call func(r *http.Request, q *Q) (*A, *connectError)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isType(r, "application/json") {
			w.Header().Set("Accept-Post", "application/json")
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		var q Q
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err == nil && len(body) > 0 {
			err = json.Unmarshal(body, &q)
		}
		if err != nil {
			failCall(w, failed(invalidArgument, "the message cannot be read: %v", err))
			return
		}
		a, refused := call(r, &q)
		if refused != nil {
			failCall(w, refused)
			return
		}
		answerJSON(w, http.StatusOK, a)
	})
}

func failCall(w http.ResponseWriter, e *connectError) {
	status := statuses[e.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	answerJSON(w, status, e)
}

func isType(r *http.Request, want string) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && t == want
}

// stream is a stream of messages to a client. It is safe for concurrent use.
type stream struct {
	ctx context.Context // ends with the client
	mu  sync.Mutex      // guards w
	w   http.ResponseWriter
}

const endOfStream = 2

// left is why a stream ends whose ctx has: the client has gone, or has waited for as long as
// it said.
func (t *stream) left() *connectError {
	if errors.Is(t.ctx.Err(), context.DeadlineExceeded) {
		return failed(deadlineExceeded, "the time is over for which the client waits")
	}
	return nil
}

// streaming makes a handler of a function that answers a call with a stream.
func streaming[Q any](call func(r *http.Request, q *Q, to *stream) *connectError) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isType(r, "application/connect+json") {
			w.Header().Set("Accept-Post", "application/connect+json")
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		w.Header().Set("Content-Type", "application/connect+json")
		ctx, end := context.WithCancel(r.Context())
		if left := timeoutOf(r); left > 0 {
			ctx, end = context.WithTimeout(r.Context(), left)
		}
		defer end()
		to := &stream{ctx: ctx, w: w}
		var q Q
		body, refused := readFrame(r.Body)
		if refused == nil {
			if err := json.Unmarshal(body, &q); err != nil {
				refused = failed(invalidArgument, "the message cannot be read: %v", err)
			}
		}
		if refused == nil {
			stop := to.keepAlive(r)
			refused = call(r, &q, to)
			stop()
		}
		last := map[string]any{}
		if refused != nil {
			last["error"] = refused
		}
		_ = to.write(endOfStream, last)
	})
}

// readFrame reads a message of a stream.
func readFrame(from io.Reader) ([]byte, *connectError) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, failed(invalidArgument, "the stream has no message: %v", err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != 0:
		return nil, failed(invalidArgument, "messages with the flags %d are not understood: send them without compression", head[0])
	case size > maxMessage:
		return nil, failed(resourceExhausted, "a message has at most %d bytes", maxMessage)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, failed(invalidArgument, "the message is not whole: %v", err)
	}
	return body, nil
}

// send sends a message; an error says that the client has gone.
func (t *stream) send(message any) error { return t.write(0, message) }

func (t *stream) write(flags byte, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	frame := make([]byte, 5, 5+len(body))
	frame[0] = flags
	binary.BigEndian.PutUint32(frame[1:], uint32(len(body)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.w.Write(append(frame, body...)); err != nil {
		return err
	}
	return http.NewResponseController(t.w).Flush()
}

// keepAlive has the client hear from the stream as often as it asked for, until stop is
// called.
func (t *stream) keepAlive(r *http.Request) (stop func()) {
	seconds, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds < 1 {
		seconds = 90
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var pinging sync.WaitGroup
	pinging.Go(func() {
		tick := time.NewTicker(time.Duration(seconds) * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if t.send(event{"keepalive": struct{}{}}.wrapped(r)) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		pinging.Wait()
	}
}

// event is one of the alternatives of an event.
type event map[string]any

// wrapped is the event as a process's stream has it, which has one more level than those
// about files.
func (e event) wrapped(r *http.Request) any {
	if len(r.URL.Path) > 8 && r.URL.Path[:9] == "/process." {
		return map[string]any{"event": e}
	}
	return e
}

// timeoutOf is for how long a client waits at most; 0: for as long as it takes.
func timeoutOf(r *http.Request) time.Duration {
	ms, err := strconv.ParseInt(r.Header.Get("Connect-Timeout-Ms"), 10, 64)
	if err != nil || ms <= 0 || ms > int64(1000*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

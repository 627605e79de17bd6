package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
)

// drainTime is how long what runs may take to stop at the end of a connection.
const drainTime = 5 * time.Second

// lastAnswersTime is how long the requests that came before the input's end may
// take for their answers, so that `paddock mcp < requests` answers them all.
// It is a call's default limit; a client that has crashed costs no more.
const lastAnswersTime = 30 * time.Second

// listenerRest is how often it is looked in that time whether anybody can still
// read the answers.
const listenerRest = 100 * time.Millisecond

// ServeStdio serves one client over a pair of streams, one message on each
// line, and closes both. It returns nil when the input has ended and what came
// before is answered; what takes longer than half a minute is cancelled then,
// and what nobody can read the answer of (peerClosed) at once. When ctx has ended what runs
// is cancelled, and its results are still sent, a few seconds later at most. A line that is not a message is answered with an error and costs
// nothing else.
func ServeStdio(ctx context.Context, server *mcp.Server, in io.ReadCloser, out io.WriteCloser) error {
	draining, drain := context.WithCancelCause(context.WithoutCancel(ctx))
	defer drain(nil)
	l := newLines(in, out)
	ss, err := server.Connect(withEnding(ctx, draining), l, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("connecting over stdio: %w", err), l.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- ss.Wait() }()
	select {
	case err = <-ended:
		return notTheEnd(err)
	case <-l.ended: // the input, and what came is answered: the SDK cancels the rest
	case <-ctx.Done():
		l.deafen()
		drain(execution.ErrDraining)
		l.waitAnswered(drainTime, listenerRest)
		go ss.Close() // waits for handlers, so it is not waited for
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case err = <-ended:
		return notTheEnd(err)
	case <-timer.C:
		return errors.Join(fault.New(fault.Unavailable, "some calls did not stop within %v", drainTime), l.Close())
	}
}

// notTheEnd leaves out of an error what only says that the streams have ended.
func notTheEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) || errors.Is(err, mcp.ErrConnectionClosed) {
		return nil
	}
	return err
}

// lines is a transport and its one connection: a JSON-RPC message, or a batch
// of them, on each line. In place of the SDK's own it answers what is no
// message instead of ending the session.
//
// Locks: writing and mu are never held together.
type lines struct {
	in  io.ReadCloser
	out io.WriteCloser

	messages chan jsonrpc.Message
	deaf     chan struct{} // closed when no more messages are passed on
	closed   chan struct{}
	ended    chan struct{} // closed when nothing more is read
	readErr  error         // set before

	deafOnce, closeOnce sync.Once
	closeErr            error

	writing sync.Mutex // held while a line is written

	mu       sync.Mutex            // guards what follows
	open     map[jsonrpc.ID]*batch // what has no answer yet; nil: it came alone
	sending  int                   // answers that are being written
	answered chan struct{}         // when set, somebody waits until there is none of either
}

// batch collects the answers to messages that came together.
type batch struct {
	waiting int
	answers []json.RawMessage
}

var _ mcp.Transport = (*lines)(nil)
var _ mcp.Connection = (*lines)(nil)

func newLines(in io.ReadCloser, out io.WriteCloser) *lines {
	return &lines{
		in: in, out: out, messages: make(chan jsonrpc.Message), deaf: make(chan struct{}), closed: make(chan struct{}),
		ended: make(chan struct{}), open: map[jsonrpc.ID]*batch{},
	}
}

// Connect begins to read. The goroutine ends with the input; Close ends it
// where the input's Close wakes up who reads it, which a terminal's does not.
func (l *lines) Connect(context.Context) (mcp.Connection, error) {
	go l.listen()
	return l, nil
}

// SessionID is empty: stdio has none.
func (l *lines) SessionID() string { return "" }

// Read gives the next message.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-l.messages:
		return m, nil
	case <-l.ended:
		return nil, l.readErr
	case <-l.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// deafen stops passing messages on, so that no new work begins.
func (l *lines) deafen() { l.deafOnce.Do(func() { close(l.deaf) }) }

// Close closes both streams. It works twice.
func (l *lines) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.closeErr = errors.Join(l.in.Close(), l.out.Close())
	})
	return l.closeErr
}

// listen reads line after line.
func (l *lines) listen() {
	defer close(l.ended)
	for r := bufio.NewReaderSize(l.in, 64<<10); ; {
		line, tooLong, err := readLine(r)
		switch {
		case tooLong:
			l.answer(refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: a line of more than %d bytes", maxLine).line())
		case len(line) > 0 && !l.accept(line):
			err = io.EOF
		}
		if err != nil {
			l.readErr = l.whyEnded(err)
			l.waitAnswered(lastAnswersTime, listenerRest)
			return
		}
	}
}

// whyEnded leaves out that a stream which Close has closed cannot be read.
func (l *lines) whyEnded(err error) error {
	select {
	case <-l.closed:
		return io.EOF
	default:
		return err
	}
}

// accept takes one line, and reports whether the connection is still there.
func (l *lines) accept(line []byte) bool {
	if line[0] == '[' {
		return l.acceptBatch(line)
	}
	m, no := decodeMessage(line)
	if no == nil {
		no = l.expect(m, nil)
	}
	switch {
	case no != nil:
		l.answer(no.line())
		return true
	case m == nil:
		return true
	}
	return l.pass(m)
}

// acceptBatch takes several messages on one line; the answers go together.
func (l *lines) acceptBatch(line []byte) bool {
	var parts []json.RawMessage
	if err := json.Unmarshal(line, &parts); err != nil {
		l.answer(refuse(nil, jsonrpc.CodeParseError, "parse error: not JSON").line())
		return true
	}
	if len(parts) == 0 || len(parts) > maxBatch {
		l.answer(refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: a batch has 1 to %d messages", maxBatch).line())
		return true
	}
	b := &batch{waiting: 1} // this function, so that it is not answered half read
	var messages []jsonrpc.Message
	for _, part := range parts {
		m, no := decodeMessage(part)
		if no == nil {
			no = l.expect(m, b)
		}
		switch {
		case no != nil:
			b.answers = append(b.answers, no.line())
		case m != nil:
			messages = append(messages, m)
		}
	}
	for _, m := range messages {
		if !l.pass(m) {
			return false
		}
	}
	l.mu.Lock()
	done := b.settle(nil)
	l.mu.Unlock()
	if done != nil {
		l.answer(done)
	}
	return true
}

// settle counts one answer of a batch, nil for none, and gives all of them
// when they are complete. The lines' mu is held.
func (b *batch) settle(answer json.RawMessage) json.RawMessage {
	if answer != nil {
		b.answers = append(b.answers, answer)
	}
	if b.waiting--; b.waiting > 0 || len(b.answers) == 0 {
		return nil
	}
	return Encoded(b.answers)
}

// expect remembers that a request needs an answer. An id that is still in use
// is refused: its answers could not be told apart.
func (l *lines) expect(m jsonrpc.Message, b *batch) *refusal {
	req, ok := m.(*jsonrpc.Request)
	if !ok || !req.IsCall() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, used := l.open[req.ID]; used {
		return refuse(Encoded(req.ID.Raw()), jsonrpc.CodeInvalidRequest, "invalid request: the id is that of a request without an answer yet")
	}
	if l.open[req.ID] = b; b != nil {
		b.waiting++
	}
	return nil
}

// pass hands a message over to who reads, and reports whether the connection is
// still there. One that drains refuses new requests.
func (l *lines) pass(m jsonrpc.Message) bool {
	select {
	case l.messages <- m:
		return true
	case <-l.closed:
		return false
	case <-l.deaf:
	}
	if req, ok := m.(*jsonrpc.Request); ok && req.IsCall() {
		no := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fault.ProblemOf(execution.ErrDraining).Line()}
		return l.Write(context.Background(), &jsonrpc.Response{ID: req.ID, Error: no}) == nil
	}
	return true
}

// Write sends a message. An answer to one of a batch waits for the others.
func (l *lines) Write(_ context.Context, m jsonrpc.Message) error {
	res, answer := m.(*jsonrpc.Response)
	if answer {
		res.Error = withCode(res.Error)
	}
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if answer {
		data = l.answering(res.ID, data)
		defer l.sent()
	}
	if data == nil {
		return nil
	}
	return l.writeLine(data)
}

// withCode gives an error of the SDK that has no code the one for requests that
// do not fit.
func withCode(err error) error {
	var coded *jsonrpc.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
}

// answering takes an id out of use, before its answer is written: from then on
// the client may use it again. It gives what is to be written; nil: nothing yet.
func (l *lines) answering(id jsonrpc.ID, answer json.RawMessage) json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.open[id]
	delete(l.open, id)
	l.sending++
	if b != nil {
		return b.settle(answer)
	}
	return answer
}

// sent counts an answer that has been written.
func (l *lines) sent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending--
	if len(l.open) == 0 && l.sending == 0 && l.answered != nil {
		close(l.answered)
		l.answered = nil
	}
}

// waitAnswered waits until every request has its answer, the time is over, or
// nobody can read answers any more, which it looks at once in every rest.
func (l *lines) waitAnswered(most, rest time.Duration) {
	l.mu.Lock()
	if len(l.open) == 0 && l.sending == 0 {
		l.mu.Unlock()
		return
	}
	if l.answered == nil {
		l.answered = make(chan struct{})
	}
	done := l.answered
	l.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	look := time.NewTicker(rest)
	defer look.Stop()
	for !peerClosed(l.out) {
		select {
		case <-done:
			return
		case <-timer.C:
			return
		case <-l.closed:
			return
		case <-look.C:
		}
	}
}

// answer sends what this transport says itself. A broken output shows with the
// SDK's next message.
func (l *lines) answer(line json.RawMessage) { _ = l.writeLine(line) }

func (l *lines) writeLine(data []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if _, err := l.out.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing a message: %w", err)
	}
	return nil
}

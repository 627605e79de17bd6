package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// forceAfter is how long the child may take to answer once a run should have
// been stopped by force; then the child itself is taken to be broken.
const forceAfter = 5 * time.Second

// frameCost is what a frame takes here besides its body, in bytes.
const frameCost = 64

// DisplayBytes is what a display of so many bytes counts: an empty one is one, too.
func DisplayBytes(data int) int64 { return int64(max(data, 1<<10)) }

// creditAt is how much output is passed on before the child is told.
const creditAt = Window / 4

var errClosed = errors.New("it was closed")

// Instance is the server's half of an instance; it implements
// sandbox.Instance and sandbox.Snapshotter.
type Instance struct {
	client *Client
	id     uint32
	memory int64 // its limit
	done   chan struct{}
	news   chan struct{} // holds one token when frames may be waiting

	mu      sync.Mutex // guards what follows
	busy    bool
	frames  []Frame       // for the goroutine that is busy with the instance
	queued  int           // their bytes, and something for each, of those that print nothing
	printed int           // the bytes of those that print
	room    int           // how many bytes may be queued now
	owed    Kind          // the answer that nobody waits for any more; busy until it comes
	settled chan struct{} // closed when it has
	closing bool          // Close was called
	torn    bool          // the last snapshot did not end well: the next one has to be whole
	ended   bool
	cause   error
}

// ID is the instance's number in its child.
func (in *Instance) ID() uint32 { return in.id }

// Done is closed when the instance has ended.
func (in *Instance) Done() <-chan struct{} { return in.done }

// Close ends the instance: the child stops what runs and says that it is gone.
// A child that does not is taken to be broken, and its connection is ended.
func (in *Instance) Close() error {
	in.mu.Lock()
	first := !in.closing && !in.ended
	in.closing = true
	in.mu.Unlock()
	if first {
		if err := in.client.conn.Write(KindClose, in.id); err != nil {
			in.client.fail(err)
		}
	}
	overdue := time.NewTimer(forceAfter)
	defer overdue.Stop()
	select {
	case <-in.done:
	case <-overdue.C:
		in.client.fail(errors.New("it did not close an instance when told to"))
		<-in.done
	}
	return nil
}

// end marks the instance as ended; the first cause counts.
func (in *Instance) end(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return
	}
	if in.closing {
		cause = errClosed
	}
	in.ended, in.cause = true, cause
	close(in.done)
}

// deliver is called by the client's reader. An error ends the connection: the
// child does not keep to the protocol.
func (in *Instance) deliver(f Frame) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.busy {
		return nil // what a run left behind
	}
	if in.owed != 0 {
		if f.Kind == in.owed {
			in.busy, in.owed = false, 0
			close(in.settled)
		}
		return nil
	}
	if (f.Kind == KindStdout || f.Kind == KindStderr) && len(f.Body) > 0 {
		in.printed += len(f.Body)
	} else {
		in.queued += len(f.Body) + frameCost
	}
	if in.queued > in.room || in.printed > 2*Window { // what the last run left may come on top of this one's
		return errors.New("it sent more than it may")
	}
	in.frames = append(in.frames, f)
	select {
	case in.news <- struct{}{}:
	default:
	}
	return nil
}

func (in *Instance) take() []Frame {
	in.mu.Lock()
	defer in.mu.Unlock()
	frames := in.frames
	in.frames, in.queued, in.printed = nil, 0, 0
	return frames
}

// begin makes the caller the one that is busy with the instance. Where an
// answer is owed to somebody who has left, it waits for that: the child takes
// one thing at a time, and an interrupt has to find what it is meant for.
func (in *Instance) begin(ctx context.Context, room int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.owed != 0 && !in.ended && !in.closing {
		settled := in.settled
		in.mu.Unlock()
		select {
		case <-settled:
		case <-in.done:
		case <-ctx.Done():
		}
		in.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	switch {
	case in.ended:
		return gone(in.cause)
	case in.closing:
		return gone(errClosed)
	case in.busy:
		return fault.New(fault.Conflict, "the interpreter is busy with another call").WithHint("wait for it, or cancel it")
	}
	in.busy, in.frames, in.queued, in.printed, in.room = true, nil, 0, 0, room
	return nil
}

func (in *Instance) isClosing() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closing
}

// abandon leaves an answer to nobody; the instance stays busy until it comes.
func (in *Instance) abandon(answer Kind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.frames {
		if f.Kind == answer { // it is there already
			in.busy, in.frames = false, nil
			return
		}
	}
	in.owed, in.settled, in.frames = answer, make(chan struct{}), nil
}

func (in *Instance) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.busy, in.frames = false, nil
}

// ask sends a frame and waits for the one that answers it.
func (in *Instance) ask(ctx context.Context, kind Kind, body any, answer Kind) ([]byte, error) {
	if err := in.begin(ctx, maxBody); err != nil {
		return nil, err
	}
	if err := in.client.conn.WriteJSON(kind, in.id, body); err != nil {
		in.finish()
		return nil, gone(err)
	}
	for {
		select {
		case <-in.news:
			for _, f := range in.take() {
				if f.Kind == answer {
					in.finish()
					return f.Body, nil
				}
			}
		case <-in.done:
			in.finish()
			return nil, gone(in.cause)
		case <-ctx.Done():
			in.abandon(answer)
			return nil, context.Cause(ctx)
		}
	}
}

// Run executes one command.
func (in *Instance) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if err := in.begin(ctx, int(cmd.Limits.DisplayBytes)+sandbox.MaxCalls+maxBody/4); err != nil {
		return sandbox.Exit{}, err
	}
	defer in.finish()
	r := &run{in: in, cmd: cmd, calls: newCalls(ctx, in, cmd.Call)}
	defer r.calls.end()
	defer r.cancelStdin()
	exit, err := r.wait(ctx)
	if err == nil && exit.Cause == sandbox.Waiting {
		r.calls.end()
		r.calls.answered(exit.Open)
	}
	return exit, err
}

// run is one command under way, seen from the server.
type run struct {
	in     *Instance
	cmd    sandbox.Command
	owed   int      // bytes passed on and not yet credited
	sent   [2]int64 // bytes of stdout and stderr
	shown  int64    // bytes of displays
	broken error
	calls  *calls

	stdinMu   sync.Mutex
	stdinDone bool
}

func (r *run) wait(ctx context.Context) (sandbox.Exit, error) {
	in, conn := r.in, r.in.client.conn
	err := conn.WriteJSON(KindRun, in.id, RunBody{
		Code: r.cmd.Code, Language: r.cmd.Language, Name: r.cmd.Name, Args: r.cmd.Args,
		Stdin: r.cmd.Stdin != nil, Limits: r.cmd.Limits, Continue: r.calls.continued(r.cmd.Continue),
	})
	if err != nil {
		return sandbox.Exit{}, gone(err)
	}
	r.calls.reopen(r.cmd.Continue)
	stop, overdue, suspend := ctx.Done(), make(<-chan time.Time), r.cmd.Suspend
	for {
		select {
		case <-in.news:
			exit, done, err := r.handle(in.take())
			if err != nil {
				in.client.fail(err)
			}
			if done && in.isClosing() {
				return sandbox.Exit{}, gone(errClosed)
			}
			if done || err != nil {
				return exit, err
			}
			if r.broken != nil && stop != nil {
				stop, overdue = nil, r.interrupt(sandbox.Cancelled)
			}
		case <-stop:
			cause := sandbox.Cancelled
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				cause = sandbox.TimedOut
			}
			stop, overdue = nil, r.interrupt(cause)
		case <-suspend:
			suspend = nil
			r.calls.suspend()
		case <-overdue:
			in.client.fail(errors.New("it did not stop a run when told to"))
			<-in.done
			return sandbox.Exit{}, gone(in.cause)
		case <-in.done:
			return sandbox.Exit{}, gone(in.cause)
		}
	}
}

// interrupt tells the child to stop the run and gives the time by which it
// must have done so.
func (r *run) interrupt(cause sandbox.Cause) <-chan time.Time {
	if err := r.in.client.conn.WriteJSON(KindInterrupt, r.in.id, InterruptBody{Cause: cause}); err != nil {
		r.in.client.fail(err)
	}
	grace := r.cmd.Limits.Grace
	if grace <= 0 {
		grace = sandbox.DefaultGrace
	}
	return time.After(grace + forceAfter)
}

func (r *run) handle(frames []Frame) (exit sandbox.Exit, done bool, err error) {
	for _, f := range frames {
		switch f.Kind {
		case KindStdout:
			r.output(r.cmd.Stdout, 0, r.cmd.Limits.StdoutBytes, f.Body)
		case KindStderr:
			r.output(r.cmd.Stderr, 1, r.cmd.Limits.StderrBytes, f.Body)
		case KindDisplay:
			r.display(f.Body)
		case KindWantStdin:
			r.feedStdin()
		case KindCall:
			err = r.calls.begin(f.Body)
		case KindGiveUp:
			err = r.calls.giveUp(f.Body)
		case KindDone:
			if err := json.Unmarshal(f.Body, &exit); err != nil {
				return exit, false, fmt.Errorf("reading how a run ended: %w", err)
			}
			if exit.Cause == 0 || exit.State == 0 {
				return exit, false, errors.New("a run ended without a cause")
			}
			exit.Open, exit.Calls, err = r.calls.left(exit.Cause == sandbox.Waiting, f.Body)
			return exit, err == nil, err
		}
		if err != nil {
			return exit, false, err
		}
	}
	return exit, false, nil
}

// output passes on what was printed, up to the limit; 0: there is none. The child
// keeps to it, unless it was taken over.
func (r *run) output(w io.Writer, which int, limit int64, p []byte) {
	r.owed += len(p)
	if limit > 0 {
		p = p[:min(int64(len(p)), limit-r.sent[which])]
	}
	r.sent[which] += int64(len(p))
	if w != nil && r.broken == nil && len(p) > 0 {
		if _, err := w.Write(p); err != nil {
			r.broken = err
		}
	}
	if r.owed >= creditAt {
		if err := r.in.client.conn.WriteJSON(KindCredit, r.in.id, CreditBody{Bytes: r.owed}); err != nil {
			r.in.client.fail(err)
		}
		r.owed = 0
	}
}

func (r *run) display(body []byte) {
	head, data, _ := bytes.Cut(body, []byte("\n"))
	var d DisplayBody
	if json.Unmarshal(head, &d) != nil || r.cmd.Display == nil {
		return
	}
	// As with output, the child does not show more.
	if n := DisplayBytes(len(data)); n <= r.cmd.Limits.DisplayBytes-r.shown {
		r.shown += n
		r.cmd.Display(sandbox.Display{MIME: d.MIME, Data: data})
	}
}

// feedStdin reads one piece of the command's input and sends it. It does so
// in a goroutine, for nobody knows how long a terminal takes; one that is
// still reading when the run ends sends nothing any more.
func (r *run) feedStdin() {
	if r.cmd.Stdin == nil {
		return
	}
	go func() {
		piece := make([]byte, 64<<10)
		n, err := 0, error(nil)
		for n == 0 && err == nil {
			n, err = r.cmd.Stdin.Read(piece)
		}
		r.stdinMu.Lock()
		defer r.stdinMu.Unlock()
		if r.stdinDone {
			return
		}
		if n > 0 {
			err = r.in.client.conn.Write(KindStdin, r.in.id, piece[:n])
		} else if err != nil {
			err = r.in.client.conn.Write(KindStdin, r.in.id)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			r.in.client.fail(err)
		}
	}()
}

func (r *run) cancelStdin() {
	r.stdinMu.Lock()
	defer r.stdinMu.Unlock()
	r.stdinDone = true
}

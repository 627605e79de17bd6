package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

func TestAChildThatIsNotReadyIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		greet func(c child)
		setup any
		want  string
	}{
		"one of another version": {func(c child) { c.send(KindReady, 0, Ready{Version: Version + 1}) }, nil, "version"},
		"one that says why not":  {func(c child) { c.send(KindReady, 0, Ready{Version: Version, Error: "no walls here"}) }, nil, "no walls here"},
		"one that dies":          {func(c child) { c.Close() }, nil, "EOF"},
		"one that babbles":       {func(c child) { c.send(KindReady, 0, []byte("{")) }, nil, "ready"},
		"one that says nothing":  {func(child) {}, nil, "timeout"},
		"a set-up that is none":  {func(child) {}, func() {}, "set-up"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer ours.Close()
				defer theirs.Close()
				go func() {
					guest := child{t, NewConn(theirs)}
					if _, err := guest.Read(); err == nil {
						c.greet(guest)
					}
				}()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("timeout is at an end"))
				defer cancel()
				client, _, err := NewClient(ctx, ours, c.setup)
				if client != nil || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v", client, err)
				}
			})
		})
	}
}

func TestAChildThatCannotBeGreetedIsAnError(t *testing.T) {
	ours, theirs := net.Pipe()
	theirs.Close()
	if _, _, err := NewClient(t.Context(), ours, nil); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Error(err)
	}
}

func TestAStartThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer        any
		kind          fault.Kind
		message, hint string
	}{
		"for a reason":        {StatusBody{Kind: string(fault.Unsupported), Message: "no cobol", Hint: "try python"}, fault.Unsupported, "no cobol", "try python"},
		"with a percent sign": {StatusBody{Kind: string(fault.Unavailable), Message: "100% full", Hint: "%s"}, fault.Unavailable, "100% full", "%s"},
		"with no JSON at all": {[]byte("{"), fault.Internal, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.expect(KindStart).ID
				ch.send(KindStarted, id, c.answer)
				ch.expect(KindClose)
				ch.send(KindGone, id, GoneBody{})
			})
			_, err := client.Start(t.Context(), StartBody{})
			if f := fault.Of(err); f.Kind != c.kind || c.message != "" && (f.Message != c.message || f.Hint != c.hint) {
				t.Errorf("it is %q: %v", f.Kind, err)
			}
			if n := client.Instances(); n != 0 {
				t.Errorf("%d instances are held", n)
			}
		})
	}
}

func TestAStartThatIsGivenUpIsTakenBack(t *testing.T) {
	asked := make(chan struct{})
	client := dial(t, func(c child) {
		id := c.expect(KindStart).ID
		close(asked)
		c.expect(KindClose)
		c.send(KindStarted, id, StatusBody{}) // too late
		c.send(KindGone, id, GoneBody{})
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	go func() { <-asked; cancel(gaveUp) }()
	if _, err := client.Start(ctx, StartBody{}); !errors.Is(err, gaveUp) {
		t.Error(err)
	}
	if n := client.Instances(); n != 0 || client.Err() != nil {
		t.Errorf("%d instances are held, the connection: %v", n, client.Err())
	}
}

func TestAnInspection(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		kind   fault.Kind // empty: it works
	}{
		"tells what there is": {map[string]any{"variables": []map[string]string{{"name": "x"}}, "imports": []string{"math"}, "memory": 5}, ""},
		"fails":               {map[string]any{"Error": "a secret of the guest's"}, fault.Unavailable},
		"is not JSON":         {[]byte("{"), fault.Internal},
		"is of another shape": {map[string]any{"variables": 5}, fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.started()
				ch.expect(KindInspect)
				ch.send(KindStdout, id, []byte("what a task left behind"))
				ch.send(KindInspected, id, c.answer)
			})
			found, err := start(t, client).Inspect(t.Context())
			if c.kind == "" {
				if err != nil || len(found.Variables) != 1 || found.Variables[0].Name != "x" || found.Imports[0] != "math" || found.Memory != 5 {
					t.Errorf("%+v, %v", found, err)
				}
			} else if f := fault.Of(err); err == nil || f.Kind != c.kind || strings.Contains(f.Message, "secret") {
				t.Errorf("%q: %v", f.Kind, err)
			}
		})
	}
}

func TestAnInstanceThatEndsByItself(t *testing.T) {
	client := dial(t, func(c child) {
		id, other := c.started(), c.started()
		c.expect(KindRun)
		c.send(KindGone, id, GoneBody{Message: "no memory for a checkpoint"})
		c.send(KindStdout, id, []byte("a ghost's"))
		c.send(KindGone, id, GoneBody{})
		c.expect(KindRun)
		c.send(KindDone, other, exited)
	})
	in, other := start(t, client), start(t, client)
	_, err := in.Run(t.Context(), sandbox.Command{})
	if f := fault.Of(err); f.Kind != fault.Unavailable || f.Hint == "" || strings.Contains(f.Message, "checkpoint") {
		t.Errorf("the run gives %q: %v", f.Kind, err)
	}
	<-in.Done()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := in.Inspect(t.Context()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("an inspection gives %v", err)
	}
	if _, err := other.Run(t.Context(), sandbox.Command{}); err != nil {
		t.Errorf("the other instance suffers: %v", err)
	}
}

func TestClosingWhileAProgramRuns(t *testing.T) {
	ran := make(chan struct{})
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		close(ran)
		c.expect(KindClose)
		c.send(KindDone, id, sandbox.Exit{Cause: sandbox.Cancelled, State: sandbox.Restored})
		c.send(KindGone, id, GoneBody{})
	})
	in := start(t, client)
	result := make(chan error, 1)
	go func() {
		_, err := in.Run(t.Context(), sandbox.Command{})
		result <- err
	}()
	<-ran
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("the run gives %v", err)
	}
}

func TestAChildThatDoesNotCloseIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() {
			c := child{t, NewConn(theirs)}
			c.expect(KindHello)
			c.send(KindReady, 0, Ready{Version: Version})
			c.started()
			_, _ = io.Copy(io.Discard, theirs)
		}()
		client, _, err := NewClient(t.Context(), ours, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := start(t, client)
		if err := in.Close(); err != nil || client.Err() == nil {
			t.Errorf("%v; the connection: %v", err, client.Err())
		}
		<-client.Done()
	})
}

func TestAReaderOfOutputThatFailsStopsTheProgram(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		c.send(KindStdout, id, []byte("one"))
		c.expect(KindInterrupt)
		c.send(KindStdout, id, []byte("two"))
		c.send(KindDone, id, sandbox.Exit{Cause: sandbox.Cancelled, State: sandbox.Kept})
	})
	writes := 0
	exit, err := start(t, client).Run(t.Context(), sandbox.Command{Stdout: writerFunc(func([]byte) (int, error) {
		writes++
		return 0, errors.New("the pipe is broken")
	})})
	if err != nil || exit.Cause != sandbox.Cancelled || writes != 1 {
		t.Errorf("%v, %v, after %d writes", exit.Cause, err, writes)
	}
}

func TestOutputThatWasPassedOnIsCredited(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		c.send(KindStdout, id, make([]byte, creditAt-1))
		c.send(KindStderr, id, []byte("1"))
		if body := string(c.expect(KindCredit).Body); body != `{"bytes":262144}` {
			t.Errorf("the credit is %s", body)
		}
		c.send(KindDone, id, exited)
	})
	if _, err := start(t, client).Run(t.Context(), sandbox.Command{}); err != nil {
		t.Error(err)
	}
}

func TestInputThatIsAskedForWhereThereIsNone(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		c.send(KindWantStdin, id, []byte{})
		c.send(KindDone, id, exited)
	})
	if _, err := start(t, client).Run(t.Context(), sandbox.Command{}); err != nil {
		t.Error(err)
	}
}

// Somebody may type when the program has long ended: the next one does not get
// it.
func TestInputThatComesAfterTheRunIsNotSent(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		c.send(KindWantStdin, id, []byte{})
		c.send(KindDone, id, exited)
		c.expect(KindRun) // and no input before it
		c.send(KindDone, id, exited)
	})
	in := start(t, client)
	typed, terminal := io.Pipe()
	if _, err := in.Run(t.Context(), sandbox.Command{Stdin: typed}); err != nil {
		t.Error(err)
	}
	go func() {
		_, _ = terminal.Write([]byte("too late"))
		terminal.Close()
	}()
	if _, err := in.Run(t.Context(), sandbox.Command{}); err != nil {
		t.Error(err)
	}
}

// stream is one end of a connection: what is read from it, and nothing else.
type stream struct{ io.Reader }

func (stream) Write(p []byte) (int, error) { return len(p), nil }
func (stream) Close() error                { return nil }

func TestFramesThatAreNotWhole(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"nothing":          {"", "EOF"},
		"half a header":    {"\x05\x00\x00\x00", "header"},
		"no body":          {"\x05\x00\x00\x00\x01\x00\x00\x00\x00", "body"},
		"half a body":      {"\x05\x00\x00\x00\x01\x00\x00\x00\x00abc", "body"},
		"more than may be": {"\x01\x00\x80\x02\x01\x00\x00\x00\x00", "over the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewConn(stream{strings.NewReader(c.sent)}).Read()
			if err == nil || !strings.Contains(err.Error(), c.want) || name == "nothing" && err != io.EOF {
				t.Error(err)
			}
		})
	}
	conn := NewConn(stream{})
	if err := conn.Write(KindStdout, 1, make([]byte, maxBody), []byte("x")); err == nil {
		t.Error("a frame that nobody would take is sent")
	}
	if err := conn.WriteJSON(KindRun, 1, func() {}); err == nil {
		t.Error("something that is not JSON is sent")
	}
}

// Whoever leaves before the answer leaves the child busy with it: a run waits,
// so that its own interrupt cannot hit what came before.
func TestARunWaitsForAnAnswerThatNobodyWaitsFor(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindInspect)
		close(asked)
		<-answer
		c.send(KindInspected, id, sandbox.Inspection{})
		c.expect(KindRun)
		c.send(KindDone, id, sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept, Result: "42"})
	})
	in := start(t, client)
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	if _, err := in.Inspect(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the inspection ended with %v", err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := in.Run(impatient, sandbox.Command{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is given up while it waits: %v", err)
	}
	close(answer)
	if exit, err := in.Run(t.Context(), sandbox.Command{}); err != nil || exit.Result != "42" {
		t.Errorf("%+v, %v", exit, err)
	}
}

package wire

import (
	"bytes"
	"context"
	"encoding/json"
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

// child plays the guest's end by a script.
type child struct {
	t *testing.T
	*Conn
}

func (c child) expect(kind Kind) Frame {
	c.t.Helper()
	f, err := c.Read()
	if err != nil {
		c.t.Errorf("waiting for a frame of kind %d: %v", kind, err)
		return Frame{}
	}
	if f.Kind != kind {
		c.t.Errorf("the server sent a frame of kind %d, want %d", f.Kind, kind)
	}
	return f
}

func (c child) send(kind Kind, id uint32, body any) {
	if raw, ok := body.([]byte); ok {
		_ = c.Write(kind, id, raw)
		return
	}
	_ = c.WriteJSON(kind, id, body)
}

// dial connects a client to a child that follows script after the greeting.
func dial(t *testing.T, script func(c child)) *Client {
	t.Helper()
	client, err := tryDial(t, script)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// tryDial is dial for a child that may be gone as soon as it has greeted.
func tryDial(t *testing.T, script func(c child)) (*Client, error) {
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c := child{t, NewConn(theirs)}
		c.expect(KindHello)
		c.send(KindReady, 0, Ready{Version: Version})
		script(c)
	}()
	client, _, err := NewClient(t.Context(), ours, nil)
	t.Cleanup(func() {
		if err == nil {
			client.Close()
		}
		theirs.Close()
		<-ended
	})
	return client, err
}

func start(t *testing.T, client *Client) *Instance {
	t.Helper()
	in, err := client.Start(t.Context(), StartBody{Runtime: "python"})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func (c child) started() uint32 {
	id := c.expect(KindStart).ID
	c.send(KindStarted, id, StatusBody{})
	return id
}

var exited = sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept}

func TestARunPassesOutputOnInOrder(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		var body RunBody
		if err := json.Unmarshal(c.expect(KindRun).Body, &body); err != nil || body.Code != "code" || !body.Stdin {
			t.Errorf("the run's body is %+v (%v)", body, err)
		}
		c.send(KindStdout, id, []byte("one "))
		c.send(KindStderr, id, []byte("err"))
		c.send(KindWantStdin, id, []byte{})
		c.send(KindStdout, id, c.expect(KindStdin).Body)
		c.send(KindWantStdin, id, []byte{})
		if n := len(c.expect(KindStdin).Body); n != 0 {
			t.Errorf("the end of the input has %d bytes", n)
		}
		c.send(KindDisplay, id, []byte("{\"mime\":\"image/png\"}\npng\nbytes"))
		c.send(KindDone, id, exited)
	})
	in := start(t, client)
	var stdout, stderr bytes.Buffer
	var shown sandbox.Display
	exit, err := in.Run(t.Context(), sandbox.Command{
		Code: "code", Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr,
		Display: func(d sandbox.Display) { shown = d }, Limits: sandbox.RunLimits{DisplayBytes: 1 << 10},
	})
	if err != nil || exit.Cause != sandbox.Exited {
		t.Fatalf("it ended with %v, %v", exit.Cause, err)
	}
	if stdout.String() != "one input" || stderr.String() != "err" {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	if shown.MIME != "image/png" || string(shown.Data) != "png\nbytes" {
		t.Errorf("it showed %q as %s", shown.Data, shown.MIME)
	}
}

// A child that was taken over keeps to no limits. What it sends beyond them is not
// passed on.
func TestTheServerKeepsTheLimitsOfARunItself(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		for range 100 {
			c.send(KindStdout, id, []byte("out"))
			c.send(KindStderr, id, []byte("err"))
			c.send(KindDisplay, id, []byte("{\"mime\":\"a/b\"}\n"))
		}
		c.send(KindDisplay, id, append([]byte("{}\n"), make([]byte, 5<<10)...))
		c.send(KindDone, id, exited)
	})
	var stdout, stderr bytes.Buffer
	shown := 0
	exit, err := start(t, client).Run(t.Context(), sandbox.Command{
		Stdout: &stdout, Stderr: &stderr, Display: func(sandbox.Display) { shown++ },
		Limits: sandbox.RunLimits{StdoutBytes: 10, DisplayBytes: 4 << 10},
	})
	if err != nil || exit.Cause != sandbox.Exited {
		t.Fatalf("it ended with %v, %v", exit.Cause, err)
	}
	if stdout.String() != "outoutouto" || stderr.Len() != 300 || shown != 4 {
		t.Errorf("stdout is %q, stderr has %d bytes, %d displays were shown", &stdout, stderr.Len(), shown)
	}
}

// blocked is somebody who takes no output until it is closed.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

func TestAChildThatSendsWithoutEndIsHungUpOn(t *testing.T) {
	for name, kind := range map[string]Kind{"nothing printed": KindStdout, "input wanted": KindWantStdin} {
		t.Run(name, func(t *testing.T) {
			slow := make(blocked)
			client := dial(t, func(c child) {
				id := c.started()
				c.expect(KindRun)
				c.send(KindStdout, id, []byte("x"))
				many := bytes.Repeat([]byte{0, 0, 0, 0, byte(kind), byte(id), 0, 0, 0}, 10_000)
				for range 1000 {
					if _, err := c.stream.Write(many); err != nil {
						close(slow)
						return
					}
				}
				t.Error("it could send ten million frames")
				close(slow)
			})
			if _, err := start(t, client).Run(t.Context(), sandbox.Command{Stdout: slow}); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("the run ended with %v", err)
			}
		})
	}
}

func TestTheContextsEndIsToldToTheChild(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want sandbox.Cause
	}{
		"a cancel": {context.WithCancel, sandbox.Cancelled},
		"a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}, sandbox.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			running := make(chan struct{})
			client := dial(t, func(c child) {
				id := c.started()
				c.expect(KindRun)
				close(running)
				var body InterruptBody
				if err := json.Unmarshal(c.expect(KindInterrupt).Body, &body); err != nil {
					t.Error(err)
				}
				c.send(KindDone, id, sandbox.Exit{Cause: body.Cause, State: sandbox.Kept})
			})
			in := start(t, client)
			ctx, cancel := c.end(t.Context())
			defer cancel()
			if c.want == sandbox.Cancelled {
				go func() { <-running; cancel() }()
			}
			exit, err := in.Run(ctx, sandbox.Command{})
			if err != nil || exit.Cause != c.want {
				t.Errorf("it ended with %v, %v; want %v", exit.Cause, err, c.want)
			}
		})
	}
}

func TestAChildThatDiesIsATypedError(t *testing.T) {
	client := dial(t, func(c child) {
		c.started()
		c.expect(KindRun)
		c.Close()
	})
	in := start(t, client)
	_, err := in.Run(t.Context(), sandbox.Command{})
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("the error is %v", err)
	}
	<-in.Done()
	if _, err := in.Run(t.Context(), sandbox.Command{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a run afterwards gives %v", err)
	}
	if _, err := client.Start(t.Context(), StartBody{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a start afterwards gives %v", err)
	}
}

func TestAChildThatBreaksTheProtocolIsHungUpOn(t *testing.T) {
	flood := bytes.Repeat([]byte("x"), 1<<20)
	for name, misbehave := range map[string]func(c child, id uint32){
		"more output than it has credit for": func(c child, id uint32) {
			for range 64 {
				if c.Write(KindStdout, id, flood) != nil {
					return
				}
			}
		},
		"an end without a cause":   func(c child, id uint32) { c.send(KindDone, id, struct{}{}) },
		"an end that is not JSON":  func(c child, id uint32) { c.send(KindDone, id, []byte("{")) },
		"a frame that is too long": func(c child, id uint32) { _, _ = c.stream.Write([]byte{255, 255, 255, 255, 1, 0, 0, 0, 0}) },
		"a second greeting": func(c child, id uint32) {
			c.send(KindReady, 0, Ready{Version: Version})
			c.send(KindReady, 0, Ready{Version: Version})
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(c child) {
				id := c.started()
				c.expect(KindRun)
				misbehave(c, id)
			})
			in := start(t, client)
			block := make(chan struct{})
			defer close(block)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			slow := writerFunc(func(p []byte) (int, error) { <-ctx.Done(); return len(p), nil })
			if name != "more output than it has credit for" {
				slow = func(p []byte) (int, error) { return len(p), nil }
			} else {
				go func() { <-client.Done(); cancel() }()
			}
			if _, err := in.Run(ctx, sandbox.Command{Stdout: slow}); err == nil {
				t.Error("the run ended without an error")
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAChildThatDoesNotStopIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct{ grace, after time.Duration }{
		"its limits give it a grace": {time.Minute, time.Minute + forceAfter},
		"they say nothing of one":    {0, sandbox.DefaultGrace + forceAfter},
		"they take one away":         {-time.Minute, sandbox.DefaultGrace + forceAfter},
	} {
		t.Run(name, func(t *testing.T) { givesUp(t, c.grace, c.after) })
	}
}

// givesUp has a run end at a deadline that its child does not hear of, and checks when it
// is given up.
func givesUp(t *testing.T, grace, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() {
			c := child{t, NewConn(theirs)}
			c.expect(KindHello)
			c.send(KindReady, 0, Ready{Version: Version})
			c.started()
			_, _ = io.Copy(io.Discard, theirs) // deaf to interrupts and closes
		}()
		client, _, err := NewClient(t.Context(), ours, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		in := start(t, client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := in.Run(ctx, sandbox.Command{Limits: sandbox.RunLimits{Grace: grace}}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("the run gives %v", err)
		}
		if took := time.Since(began); took != time.Second+after {
			t.Errorf("it was given up after %v, and not %v", took, time.Second+after)
		}
		if client.Err() == nil {
			t.Error("the connection lives on")
		}
	})
}

func TestOneRunAtATime(t *testing.T) {
	ran := make(chan struct{})
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRun)
		close(ran)
		c.expect(KindInterrupt)
		c.send(KindDone, id, sandbox.Exit{Cause: sandbox.Cancelled, State: sandbox.Kept})
		c.expect(KindClose)
		c.send(KindGone, id, GoneBody{})
	})
	in := start(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := in.Run(ctx, sandbox.Command{})
		first <- err
	}()
	<-ran
	if _, err := in.Run(t.Context(), sandbox.Command{}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a second run gives %v", err)
	}
	if _, err := in.Inspect(t.Context()); fault.KindOf(err) != fault.Conflict {
		t.Errorf("an inspection gives %v", err)
	}
	cancel()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := errors.Join(in.Close(), in.Close()); err != nil {
		t.Error(err)
	}
}

func FuzzServerSurvivesAnyChild(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, byte(KindStarted), 1, 0, 0, 0, '{', '}', 2, 0, 0, 0, byte(KindDone), 1, 0, 0, 0, '{', '}'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		client, err := tryDial(t, func(c child) {
			_, _ = c.stream.Write(stream)
			c.Close()
		})
		if err != nil {
			return // it was gone before the greeting was read
		}
		if in, err := client.Start(t.Context(), StartBody{}); err == nil {
			_, _ = in.Run(t.Context(), sandbox.Command{Stdout: io.Discard})
			in.Close()
		}
	})
}

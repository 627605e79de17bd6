package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// echo is a process whose instances print the code that they are given.
type echo struct {
	loop     *Loop[*echoed]
	conn     *wire.Conn
	opened   chan struct{} // instances are made when it gives something; nil: at once
	prepared error

	mu     sync.Mutex // guards closed
	closed int
}

func (e *echo) Prepare(setup json.RawMessage) ([]sandbox.Protection, error) {
	return []sandbox.Protection{{Name: string(setup), Active: true}}, e.prepared
}

func (e *echo) Start(id uint32, body wire.StartBody) func() (*echoed, *wire.StatusBody) {
	return func() (*echoed, *wire.StatusBody) {
		if e.opened != nil {
			<-e.opened
		}
		if body.Runtime != "echo" {
			refusal := wire.ErrorBody(fault.New(fault.Unsupported, "no such runtime"))
			return nil, &refusal
		}
		return &echoed{process: e, id: id, ends: NewEnds(e.conn, id)}, nil
	}
}

func (e *echo) Frame(f wire.Frame) (bool, error) {
	switch f.Kind {
	case wire.KindManage:
		return true, errors.New("not in this process")
	case wire.KindDial:
		Send(e.conn, wire.KindDialed, f.ID, wire.ErrorBody(fault.New(fault.Unavailable, "nobody is there")))
		return true, nil
	}
	return false, nil
}

type echoed struct {
	process *echo
	id      uint32
	ends    *Ends
	use     sync.Mutex
	gone    bool
}

func (in *echoed) Ends() *Ends { return in.ends }

func (in *echoed) Frame(f wire.Frame) (bool, error) { return f.Kind == wire.KindRefresh, nil }

func (in *echoed) Inspect() {
	Send(in.process.conn, wire.KindInspected, in.id, sandbox.Inspection{Imports: []string{"echo"}})
}

// Run prints the code and what it is given, and waits to be interrupted if the
// code says so.
func (in *echoed) Run(body wire.RunBody) {
	in.use.Lock()
	defer in.use.Unlock()
	in.ends.Out.Begin(body.Limits)
	in.ends.In.Begin(body.Stdin)
	in.ends.Out.Write(0, []byte(body.Code))
	soft, _ := in.ends.Control.Stops()
	for {
		p, ok := in.ends.In.Next(soft)
		if !ok || len(p) == 0 {
			break
		}
		in.ends.Out.Write(1, p)
	}
	if body.Code == "wait" {
		<-soft
	}
	in.ends.Out.End()
	exit := sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept}
	if cause := in.ends.Control.End(); cause != 0 {
		exit.Cause = cause
	}
	Send(in.process.conn, wire.KindDone, in.id, exit)
}

func (in *echoed) Close() {
	in.ends.Control.Force(sandbox.Cancelled)
	in.use.Lock()
	defer in.use.Unlock()
	if in.gone {
		return
	}
	in.gone = true
	in.process.mu.Lock()
	in.process.closed++
	in.process.mu.Unlock()
	in.process.loop.Forget(in.id)
	Send(in.process.conn, wire.KindGone, in.id, wire.GoneBody{Message: "it was closed"})
}

// served is an echo and what its loop ended with.
type served struct {
	*echo
	ended chan error
}

func serveEcho(stream net.Conn, e *echo) served {
	e.conn = wire.NewConn(stream)
	e.loop = NewLoop(e.conn, e)
	s := served{e, make(chan error, 1)}
	go func() {
		err := e.loop.Run()
		stream.Close()
		e.loop.End()
		e.loop.Wait()
		s.ended <- err
	}()
	return s
}

// connected is a client whose child is e.
func connected(t *testing.T, e *echo) (*wire.Client, served) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := serveEcho(theirs, e)
	c, ready, err := wire.NewClient(t.Context(), ours, "walls")
	if err != nil {
		t.Fatal(err)
	}
	if len(ready.Protections) != 1 || ready.Protections[0].Name != `"walls"` {
		t.Errorf("its protections are %v", ready.Protections)
	}
	return c, s
}

func (s served) wantEnd(t *testing.T, want string) {
	t.Helper()
	err := <-s.ended
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("it ended with %v, not %q", err, want)
	}
}

func TestALoopServesAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connected(t, &echo{})
		in, err := c.Start(t.Context(), wire.StartBody{Runtime: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		exit, err := in.Run(t.Context(), sandbox.Command{Code: "hello", Stdin: strings.NewReader("input"), Stdout: &stdout, Stderr: &stderr})
		if err != nil || exit.Cause != sandbox.Exited || stdout.String() != "hello" || stderr.String() != "input" {
			t.Errorf("it printed %q, %q, %v, %v", &stdout, &stderr, exit.Cause, err)
		}
		if seen, err := in.Inspect(t.Context()); err != nil || !slices.Equal(seen.Imports, []string{"echo"}) {
			t.Errorf("it holds %v, %v", seen, err)
		}
		if _, err := c.Dial(t.Context(), 80); fault.KindOf(err) != fault.Unavailable { // with the number of the instance
			t.Errorf("a connection is %v", err)
		}
		if _, err := c.Start(t.Context(), wire.StartBody{Runtime: "other"}); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("another runtime: %v", err)
		}
		if got, ok := s.loop.Instance(in.ID()); !ok || got.id != in.ID() || len(s.loop.Instances()) != 1 {
			t.Errorf("%d instances are there", len(s.loop.Instances()))
		}
		in.Close()
		if len(s.loop.Instances()) != 0 || s.closed != 1 {
			t.Errorf("%d instances are left, %d were closed", len(s.loop.Instances()), s.closed)
		}
		c.Close()
		s.wantEnd(t, "")
	})
}

func TestALoopThatIsHungUpOnEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connected(t, &echo{})
		in, err := c.Start(t.Context(), wire.StartBody{Runtime: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		go in.Run(t.Context(), sandbox.Command{Code: "wait"})
		synctest.Wait()
		c.Close()
		s.wantEnd(t, "")
		if s.closed != 1 {
			t.Error("what ran was not closed")
		}
	})
}

// TestWhatNobodyWantsAnyMoreIsNotKept closes what is still being opened, by name
// and by hanging up.
func TestWhatNobodyWantsAnyMoreIsNotKept(t *testing.T) {
	for name, hangUp := range map[string]bool{"closed": false, "hung up on": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := connected(t, &echo{opened: make(chan struct{})})
				ctx, cancel := context.WithCancel(t.Context())
				given := make(chan error)
				go func() {
					_, err := c.Start(ctx, wire.StartBody{Runtime: "echo"})
					given <- err
				}()
				synctest.Wait()
				if hangUp {
					c.Close()
				}
				cancel()
				if err := <-given; err == nil {
					t.Error("it was started")
				}
				s.opened <- struct{}{}
				synctest.Wait()
				if s.closed != 1 || len(s.loop.Instances()) != 0 {
					t.Errorf("%d were closed, %d are there", s.closed, len(s.loop.Instances()))
				}
				c.Close()
				s.wantEnd(t, "")
			})
		})
	}
}

func TestAnInterruptRightBehindARunFindsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		s := serveEcho(theirs, &echo{})
		conn := wire.NewConn(ours)
		done := make(chan sandbox.Exit, 1)
		go func() {
			for {
				f, err := conn.Read()
				if err != nil {
					return
				}
				if f.Kind == wire.KindDone {
					var exit sandbox.Exit
					_ = json.Unmarshal(f.Body, &exit)
					done <- exit
				}
			}
		}()
		Send(conn, wire.KindHello, 0, wire.Hello{Version: wire.Version})
		Send(conn, wire.KindStart, 7, wire.StartBody{Runtime: "echo"})
		synctest.Wait()
		Send(conn, wire.KindRun, 7, wire.RunBody{Code: "wait", Limits: sandbox.RunLimits{Grace: time.Hour}})
		Send(conn, wire.KindInterrupt, 7, wire.InterruptBody{Cause: sandbox.TimedOut})
		if exit := <-done; exit.Cause != sandbox.TimedOut {
			t.Errorf("it ended because of %v", exit.Cause)
		}
		conn.Close()
		s.wantEnd(t, "")
	})
}

func TestALoopEndsWithAServerThatMakesNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		kinds []wire.Kind
		body  string
		want  string
	}{
		"no hello":            {[]wire.Kind{wire.KindRun}, "{}", "no hello"},
		"a hello of nonsense": {[]wire.Kind{wire.KindHello}, "}", "no hello"},
		"a start of nonsense": {[]wire.Kind{wire.KindHello, wire.KindStart}, "[]", "frame of kind"},
		"not in this process": {[]wire.Kind{wire.KindHello, wire.KindManage}, "{}", "not in this process"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			s := serveEcho(theirs, &echo{})
			conn := wire.NewConn(ours)
			defer conn.Close()
			go func() {
				for _, err := conn.Read(); err == nil; _, err = conn.Read() {
				}
			}()
			for n, kind := range c.kinds {
				body := c.body
				if n < len(c.kinds)-1 {
					body = "{}"
				}
				_ = conn.Write(kind, 0, []byte(body))
			}
			s.wantEnd(t, c.want)
		})
	}
}

func TestAProcessThatCannotBePreparedSaysSo(t *testing.T) {
	ours, theirs := net.Pipe()
	s := serveEcho(theirs, &echo{prepared: errors.New("no walls")})
	if _, _, err := wire.NewClient(t.Context(), ours, nil); err == nil || !strings.Contains(err.Error(), "no walls") {
		t.Errorf("the client is told %v", err)
	}
	s.wantEnd(t, "no walls")
}

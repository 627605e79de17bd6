package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// cellTimeout bounds what takes a fraction of a second; the machine may be loaded.
const cellTimeout = 2 * time.Minute

// Cell is one run and what has to come of it. Out, Result, Displays and Fails are
// the whole, or the beginning where they end in …; a zero means that there is
// none.
type Cell struct {
	Language, Code, Stdin string
	Args                  []string
	Wall                  time.Duration // after which it is interrupted; 0: it is not
	Told                  bool          // Wall counts from its first output
	// Needs is a module of Python, in the place of Code; without it the test is
	// skipped.
	Needs string

	Out      string // of stdout, without line breaks at the end
	Err      string // is in stderr; empty, where nothing fails: there is none
	Result   string
	Displays string        // their types and contents, each like `type "content";`
	Fails    string        // the error, as "Type: message"
	Hint     string        // is in the error's hint
	Line     int           // the error's; 0: any
	Exit     int           // 0 where it fails: any but 0
	Cause    sandbox.Cause // 0: Exited
	State    sandbox.State // 0: Kept
}

// Ran is how a cell ended and what it printed and showed.
type Ran struct {
	sandbox.Exit
	Out, Err, Displays string
}

// Run runs the cell, and looks at nothing. On a busy machine its time may be over before
// it has begun: then it has more.
func (c Cell) Run(t *testing.T, in sandbox.Instance) Ran {
	t.Helper()
	for {
		r := c.once(t, in)
		if c.Wall <= 0 || c.Wall > cellTimeout || r.Error == nil || r.Error.Type != "Stopped" || !strings.Contains(r.Error.Message, "before it began") {
			return r
		}
		c.Wall *= 2
	}
}

func (c Cell) once(t *testing.T, in sandbox.Instance) Ran {
	t.Helper()
	ctx, pass := Deadline(t.Context())
	timeout := cellTimeout
	if c.Wall > 0 && !c.Told {
		timeout = c.Wall
	}
	over := time.AfterFunc(timeout, pass)
	defer func() { over.Stop() }()
	var out, err, shown bytes.Buffer
	told := sync.OnceFunc(func() {
		if c.Told && over.Stop() {
			over = time.AfterFunc(c.Wall, pass)
		}
	})
	cmd := sandbox.Command{
		Code: c.Code, Language: c.Language, Args: c.Args, Stderr: &err,
		Stdout:  writer(func(p []byte) (int, error) { told(); return out.Write(p) }),
		Display: func(d sandbox.Display) { fmt.Fprintf(&shown, "%s %.40q;", d.MIME, d.Data) },
		Limits:  sandbox.RunLimits{DisplayBytes: 20 << 20, Grace: 2 * time.Second},
	}
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	exit, failed := in.Run(ctx, cmd)
	if failed != nil {
		t.Fatalf("%q: %v", c.Code, failed)
	}
	return Ran{exit, out.String(), err.String(), shown.String()}
}

// Deadline gives a context that ends when pass is called as others do when their deadline
// has passed. It may be called more than once.
func Deadline(parent context.Context) (ctx context.Context, pass func()) {
	d := deadline{parent, make(chan struct{})}
	return d, sync.OnceFunc(func() { close(d.passed) })
}

type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Check runs the cell, and fails the test where something else comes of it.
func (c Cell) Check(t *testing.T, in sandbox.Instance) {
	t.Helper()
	if c.Needs != "" {
		r := Cell{Code: "import " + c.Needs}.Run(t, in)
		Require(t, "packages", r.Code == 0, "there is no "+c.Needs)
		return
	}
	c.compare(t, c.Run(t, in))
}

func (c Cell) compare(t *testing.T, r Ran) {
	t.Helper()
	wrong := func(what string, got, want any) {
		t.Helper()
		t.Errorf("%.1000q: got %s %+v, want %+v (stderr %.1000q)", c.Code, what, got, want, r.Err)
	}
	failed := ""
	if r.Error != nil {
		failed = r.Error.Type + ": " + r.Error.Message
		if c.Line != 0 && r.Error.Line != c.Line {
			wrong("the error's line", r.Error.Line, c.Line)
		}
		if !strings.Contains(r.Error.Hint, c.Hint) {
			wrong("the hint", r.Error.Hint, c.Hint)
		}
	}
	if c.Cause == 0 {
		c.Cause = sandbox.Exited
	}
	if c.State == 0 {
		c.State = sandbox.Kept
	}
	if c.Exit == 0 && c.Fails != "" && r.Code != 0 {
		c.Exit = r.Code
	}
	if r.Cause != c.Cause {
		wrong("the cause", r.Cause, c.Cause)
	}
	if r.State != c.State {
		wrong("the state", r.State, c.State)
	}
	if r.Code != c.Exit {
		wrong("the exit code", r.Code, c.Exit)
	}
	if !matches(failed, c.Fails) {
		wrong("the error", failed, c.Fails)
	}
	if got := strings.TrimRight(r.Out, "\n"); !matches(got, c.Out) {
		wrong("the output", got, c.Out)
	}
	if !matches(r.Result, c.Result) {
		wrong("the result", r.Result, c.Result)
	}
	if !matches(r.Displays, c.Displays) {
		wrong("the displays", r.Displays, c.Displays)
	}
	if !strings.Contains(r.Err, c.Err) || c.Err == "" && c.Fails == "" && r.Err != "" {
		wrong("the output for errors", r.Err, c.Err)
	}
}

func matches(got, want string) bool {
	if begin, ok := strings.CutSuffix(want, "…"); ok {
		return strings.HasPrefix(got, begin)
	}
	return got == want
}

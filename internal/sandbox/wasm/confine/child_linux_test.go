package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/linear"
)

// childRole is the name (argv[0]) of the test binary as a child that confines
// itself and then tries things. Its standard input is a socket.
const childRole = "confined-child"

func TestMain(m *testing.M) {
	if os.Args[0] != childRole {
		os.Exit(m.Run())
	}
	if err := childMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is what the parent tells its child at first.
type order struct {
	Policy Policy
	Free   bool   // leave the walls out, to see that the tries can succeed
	End    string // how to end instead of trying things: "panic", "x32"
	// Outside is a folder that everybody may change and the policy does not name.
	Outside string
}

// built is the child's first answer.
type built struct {
	Walls []sandbox.Protection
	Error string
}

// outcome is what came of a try. Errno is 0 after success, and -1 for an error
// that is none of the kernel's.
type outcome struct {
	Errno int
	Text  string
}

func outcomeOf(err error) outcome {
	var n syscall.Errno
	switch {
	case err == nil:
		return outcome{}
	case errors.As(err, &n):
		return outcome{int(n), err.Error()}
	}
	return outcome{-1, err.Error()}
}

// confined is what the child holds from before the walls stood.
type confined struct {
	order
	conn     net.Conn
	socket   uintptr // conn's descriptor
	root     *os.Root
	pagemap  *os.File
	old      chan func() // runs on a thread that is older than the walls
	writable string
	readable string
}

func childMain() error {
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	c := &confined{conn: conn, old: make(chan func())}
	if err := in.Decode(&c.order); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		return out.Encode(built{Error: err.Error()})
	}
	var b built
	if !c.Free {
		if b.Walls, err = Apply(c.Policy); err != nil {
			b.Error = err.Error()
		}
	}
	if err := out.Encode(b); err != nil || b.Error != "" {
		return err
	}
	var goOn bool // the parent has looked at us
	if err := in.Decode(&goOn); err != nil {
		return err
	}
	switch c.End {
	case "panic":
		panic("the reason of the panic")
	case "x32":
		_, _, e := syscall.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		return fmt.Errorf("still alive: %w", e)
	}
	outcomes := map[string]outcome{}
	for _, t := range tries() {
		outcomes[t.name] = outcomeOf(t.do(c))
	}
	return out.Encode(outcomes)
}

// olds is how many threads the child has for onOldThread.
const olds = 4

// prepare opens what a worker opens before it is confined.
func (c *confined) prepare() (err error) {
	if len(c.Policy.Writable) == 0 || len(c.Policy.Readable) == 0 {
		return nil
	}
	c.writable, c.readable = c.Policy.Writable[0], c.Policy.Readable[0]
	if c.root, err = os.OpenRoot(c.writable); err != nil {
		return nil // the test is about a folder that is not there
	}
	if c.pagemap, err = os.Open("/proc/self/pagemap"); err != nil {
		return err
	}
	linear.Prepare()
	raw, err := c.conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) { c.socket = fd }); err != nil {
		return err
	}
	running := make(chan bool)
	for range olds {
		go func() {
			runtime.LockOSThread()
			running <- true
			for f := range c.old {
				f()
			}
		}()
	}
	for range olds {
		<-running
	}
	return nil
}

// onOldThread runs f on a thread that was there before the walls.
func (c *confined) onOldThread(f func() error) error {
	done := make(chan error)
	c.old <- func() { done <- f() }
	return <-done
}

// child is the parent's view of it.
type child struct {
	t      *testing.T
	pid    int
	walls  map[string]bool
	err    string // of Apply
	in     *json.Decoder
	out    *json.Encoder
	stderr *bytes.Buffer
	wait   func() error
}

// finish lets the child try everything and gives what came of it.
func (c *child) finish() map[string]outcome {
	c.t.Helper()
	var outcomes map[string]outcome
	if err := errors.Join(c.out.Encode(true), c.in.Decode(&outcomes), c.wait()); err != nil {
		c.t.Fatalf("the child: %v\n%s", err, c.stderr)
	}
	return outcomes
}

// status is the fields of a thread's /proc status, by name.
func status(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

package agent

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// Main is the agent's whole life; it gives the process's exit code. When it
// returns, no process that it started is left.
func Main(args []string) int {
	// To wake another thread takes longer, in a box, than what an agent does in a call.
	runtime.GOMAXPROCS(1)
	// Nothing tells the agent to end; it does so when the server hangs up. These
	// are caught and not ignored, for what it starts would ignore them as well.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// This is ignored, also there: a file that grows beyond its limit is an error
	// of the write.
	signal.Ignore(syscall.SIGXFSZ)
	closeOnExec()
	stream, err := inherited(args)
	if err == nil {
		err = newAgent(stream).serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "paddock: agent:", err)
		return 1
	}
	return 0
}

// closeOnExec keeps whatever the agent inherited from what it starts.
func closeOnExec() {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // a box without /proc has no programs to speak of
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// inherited opens the connection to the server.
func inherited(args []string) (io.ReadWriteCloser, error) {
	flags := flag.NewFlagSet(Role, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	both, in, out := flags.Int("fd", 3, ""), flags.Int("in", -1, ""), flags.Int("out", -1, "")
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	if *in < 0 || *out < 0 {
		return open(*both)
	}
	r, err := open(*in)
	if err != nil {
		return nil, err
	}
	w, err := open(*out)
	if err != nil {
		r.Close()
		return nil, err
	}
	return &pipes{r, w}, nil
}

// open takes a descriptor over; nothing that the agent starts inherits it.
func open(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("opening the connection, descriptor %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

type pipes struct{ r, w *os.File }

func (p *pipes) Read(b []byte) (int, error)  { return p.r.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *pipes) Close() error                { return errors.Join(p.r.Close(), p.w.Close()) }

// agent is all of a box.
//
// Lock order: instance.use, then agent.mu, reaper.mu or the loop's.
type agent struct {
	conn  *wire.Conn
	loop  *serve.Loop[*instance]
	setup Setup
	reap  *reaper // nil before Prepare
	// What connects to ports of the box, and to proxy.
	streams   *wire.Streams
	proxy     atomic.Pointer[proxy] // nil: nothing connects to the server
	passed    atomic.Uint32         // streams that were opened
	passing   sync.WaitGroup        // what proxies do
	terminals terminals
	daemon    daemon

	mu    sync.Mutex      // guards what follows
	known map[life]uint32 // whose a process is, once it was seen
}

func newAgent(stream io.ReadWriteCloser) *agent {
	a := &agent{conn: wire.NewConn(stream), known: map[life]uint32{}}
	a.loop, a.streams = serve.NewLoop(a.conn, a), wire.NewStreams(a.conn)
	return a
}

// serve answers the server until it hangs up, and ends everything then.
func (a *agent) serve() error {
	defer a.conn.Close()
	err := a.loop.Run()
	a.end()
	return err
}

// Prepare begins to look after processes, and bounds them.
func (a *agent) Prepare(setup json.RawMessage) ([]sandbox.Protection, error) {
	var err error
	if len(setup) > 0 {
		err = json.Unmarshal(setup, &a.setup)
	}
	if err == nil {
		a.reap, err = newReaper()
	}
	if err == nil && a.setup.Listen != 0 {
		err = a.listen(a.setup.Listen)
	}
	if err != nil {
		return nil, err
	}
	return a.limit(), nil
}

var errHungUp = errors.New("the server hung up")

// limit bounds what every process of the box may have, by bounding the agent.
func (a *agent) limit() []sandbox.Protection {
	set := func(name string, resource int, n uint64) sandbox.Protection {
		err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n})
		p := sandbox.Protection{Name: name, Active: err == nil, Detail: fmt.Sprintf("at most %d", n)}
		if err != nil {
			p.Detail = err.Error()
		}
		return p
	}
	all := []sandbox.Protection{set("core files", unix.RLIMIT_CORE, 0)}
	if n := a.setup.Processes; n > 0 {
		all = append(all, set("processes", unix.RLIMIT_NPROC, n))
	}
	if n := a.setup.OpenFiles; n > 0 {
		// Through package syscall, which otherwise gives children what it found.
		err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
		all = append(all, sandbox.Protection{Name: "open files", Active: err == nil, Detail: fmt.Sprintf("at most %d for each process", n)})
	}
	return all
}

// Start makes an instance.
func (a *agent) Start(id uint32, body wire.StartBody) func() (*instance, *wire.StatusBody) {
	return func() (*instance, *wire.StatusBody) {
		in, err := a.open(id, body)
		if err != nil {
			refusal := wire.ErrorBody(fault.Of(err))
			return nil, &refusal
		}
		return in, nil
	}
}

// Frame takes what is for no instance: questions about processes, and streams.
func (a *agent) Frame(f wire.Frame) (taken bool, err error) {
	switch f.Kind {
	case wire.KindManage:
		var body wire.ManageBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return true, err
		}
		a.loop.Go(func() { a.send(wire.KindManaged, 0, a.manage(body)) })
		return true, nil
	case wire.KindHold:
		return true, a.hold(f.ID)
	case wire.KindDial, wire.KindStreamData, wire.KindStreamEnd, wire.KindStreamCredit, wire.KindStreamClose:
		return true, a.stream(f)
	}
	return false, nil
}

// end stops everything and waits: the server is gone.
func (a *agent) end() {
	a.streams.End(errHungUp)
	if p := a.proxy.Load(); p != nil {
		p.close()
	}
	if a.reap != nil {
		a.loop.End()
		a.killAll()
	}
	a.endEnvd()
	a.passing.Wait()
	if a.reap == nil {
		return // nothing was ever started
	}
	a.loop.Wait()
	a.reap.close()
}

// send tells the server something.
func (a *agent) send(kind wire.Kind, id uint32, body any) { serve.Send(a.conn, kind, id, body) }

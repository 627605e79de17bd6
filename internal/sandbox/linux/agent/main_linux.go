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
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
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
		err = serve(stream)
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
// Lock order: instance.use, agent.mu, reaper.mu.
type agent struct {
	conn  *wire.Conn
	setup Setup
	reap  *reaper
	// What connects to ports of the box.
	streams *wire.Streams

	mu        sync.Mutex // guards what follows
	instances map[uint32]*instance
	opening   map[uint32]bool // true: to be closed when it is there
	known     map[life]uint32 // whose a process is, once it was seen
	closed    bool
	work      sync.WaitGroup // what has a goroutine of its own
}

// serve answers the server until it hangs up, and ends everything then.
func serve(stream io.ReadWriteCloser) error {
	a := &agent{
		conn: wire.NewConn(stream), instances: map[uint32]*instance{}, opening: map[uint32]bool{}, known: map[life]uint32{},
	}
	a.streams = wire.NewStreams(a.conn)
	defer a.conn.Close()
	f, err := a.conn.Read()
	if err != nil {
		return fmt.Errorf("waiting for the server's hello: %w", err)
	}
	var hello wire.Hello
	err = json.Unmarshal(f.Body, &hello)
	if err == nil && len(hello.Setup) > 0 {
		err = json.Unmarshal(hello.Setup, &a.setup)
	}
	if err != nil || f.Kind != wire.KindHello {
		return fmt.Errorf("the first frame is of kind %d and no hello: %v", f.Kind, err)
	}
	if a.reap, err = newReaper(); err != nil {
		a.send(wire.KindReady, 0, wire.Ready{Version: wire.Version, Error: err.Error()})
		return err
	}
	a.send(wire.KindReady, 0, wire.Ready{Version: wire.Version, Protections: a.limit()})
	for err == nil {
		if f, err = a.conn.Read(); err == nil {
			err = a.dispatch(f)
		} else {
			err = errHungUp
		}
	}
	a.end()
	if errors.Is(err, errHungUp) {
		return nil
	}
	return err
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

// dispatch hands a frame to whom it is for. What takes time gets a goroutine,
// for which end waits.
func (a *agent) dispatch(f wire.Frame) error {
	switch f.Kind {
	case wire.KindStart:
		var body wire.StartBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return fmt.Errorf("reading a start: %w", err)
		}
		a.mu.Lock()
		a.opening[f.ID] = false
		a.mu.Unlock()
		a.work.Go(func() { a.start(f.ID, body) })
		return nil
	case wire.KindManage:
		var body wire.ManageBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return fmt.Errorf("reading about processes: %w", err)
		}
		a.work.Go(func() { a.send(wire.KindManaged, 0, a.manage(body)) })
		return nil
	case wire.KindDial, wire.KindStreamData, wire.KindStreamEnd, wire.KindStreamCredit, wire.KindStreamClose:
		return a.stream(f)
	}
	a.mu.Lock()
	in := a.instances[f.ID]
	if _, ok := a.opening[f.ID]; ok && f.Kind == wire.KindClose {
		a.opening[f.ID] = true
	}
	a.mu.Unlock()
	if in != nil {
		return in.dispatch(f)
	}
	if f.Kind == wire.KindClose {
		a.send(wire.KindGone, f.ID, wire.GoneBody{Message: "it was not there"})
	}
	return nil
}

func (in *instance) dispatch(f wire.Frame) (err error) {
	work := &in.agent.work
	switch f.Kind {
	case wire.KindRun:
		var body wire.RunBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.ctl.begin(body.Limits.Grace) // here, so that an interrupt right behind finds the run
			work.Go(func() { in.run(body) })
		}
	case wire.KindStdin:
		in.in.push(f.Body)
	case wire.KindCredit:
		var body wire.CreditBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.out.grant(body.Bytes)
		}
	case wire.KindInterrupt:
		var body wire.InterruptBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.ctl.interrupt(body.Cause)
		}
	case wire.KindInspect:
		work.Go(in.inspect)
	case wire.KindClose:
		work.Go(in.close)
	}
	return err
}

func (a *agent) start(id uint32, body wire.StartBody) {
	in, err := a.open(id, body)
	a.mu.Lock()
	unwanted := a.opening[id] || a.closed
	delete(a.opening, id)
	if err == nil && !unwanted {
		a.instances[id] = in
	}
	a.mu.Unlock()
	switch {
	case err != nil:
		a.send(wire.KindStarted, id, wire.Refusal(fault.Of(err)))
	case unwanted:
		in.discard()
	default:
		a.send(wire.KindStarted, id, wire.AnswerBody{})
	}
}

// end stops everything and waits: the server is gone.
func (a *agent) end() {
	a.mu.Lock()
	a.closed = true
	all := a.instances
	a.instances = map[uint32]*instance{}
	a.mu.Unlock()
	a.streams.End(errHungUp)
	for _, in := range all {
		in.close()
	}
	a.killAll()
	a.work.Wait()
	a.reap.close()
}

// send tells the server something. When it cannot, the server is gone, and
// serve is about to notice.
func (a *agent) send(kind wire.Kind, id uint32, body any) {
	_ = a.conn.WriteJSON(kind, id, body)
}

package envd

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// keepEnded is for how long it is known how a process ended; killedOutput is for how long the
// output of one is read that was killed: what it started may hold it open for ever.
const (
	keepEnded    = 30 * time.Second
	killedOutput = time.Second
	// lastWords is for how long nothing may come from a terminal whose process has ended, until
	// nothing more is waited for, and mostLastWords how much may come then from what it left.
	lastWords     = 50 * time.Millisecond
	mostLastWords = 256 << 10
	chunk         = 32 << 10 // bytes of output in a message
	queued        = 64       // messages that wait for a client
)

// processes are those that clients started. It is safe for concurrent use.
type processes struct {
	mu  sync.Mutex // guards all
	all map[int]*process
}

// process is one that a client started. It goes on when its client has gone.
type process struct {
	config processConfig
	tag    string
	child  Child
	master *os.File // of its terminal; nil: it has none

	typing  sync.Mutex // held by who writes to stdin
	input   sync.Mutex // guards stdin
	stdin   *os.File   // nil: it is closed, or never was open
	killed  chan struct{}
	killing sync.Once

	mu      sync.Mutex // guards what follows
	readers map[*reader]struct{}
	end     *endEvent     // nil: it has not ended
	over    chan struct{} // closed with end
}

// reader is a client that reads what a process prints.
type reader struct {
	events chan event
	gone   chan struct{} // closed when the client has gone
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs"`
	Cwd  string            `json:"cwd,omitempty"`
}

type endEvent struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
	Error    string `json:"error,omitempty"`
}

// get finds a process by a selector.
func (p *processes) get(by selector) (*process, *connectError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if by.Tag != nil {
		for _, one := range p.all {
			if one.tag == *by.Tag && *by.Tag != "" {
				return one, nil
			}
		}
		return nil, failed(notFound, "process with tag %s not found", *by.Tag)
	}
	if one := p.all[by.PID]; one != nil {
		return one, nil
	}
	return nil, failed(notFound, "process with pid %d not found", by.PID)
}

// living is get for those that have not ended.
func (p *processes) living(by selector) (*process, *connectError) {
	one, refused := p.get(by)
	if refused == nil && one.ended() != nil {
		return nil, failed(notFound, "process with pid %d not found: it has ended", one.child.PID())
	}
	return one, refused
}

func (p *processes) add(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[int]*process{}
	}
	p.all[one.child.PID()] = one
}

// forget removes one some time after it has ended.
func (p *processes) forget(one *process) {
	time.AfterFunc(keepEnded, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.all[one.child.PID()] == one {
			delete(p.all, one.child.PID())
		}
	})
}

func (p *processes) list() (living []*process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range slices.Sorted(maps.Keys(p.all)) {
		if one := p.all[pid]; one.ended() == nil {
			living = append(living, one)
		}
	}
	return living
}

func (p *process) ended() *endEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// attach has a client read what is printed from now on.
func (p *process) attach() *reader {
	r := &reader{events: make(chan event, queued), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers[r] = struct{}{}
	return r
}

func (p *process) detach(r *reader) {
	p.mu.Lock()
	delete(p.readers, r)
	p.mu.Unlock()
	close(r.gone)
}

// publish gives an event to who reads. It waits for them, as a program does whose output is
// not read; without any it is lost.
func (p *process) publish(e event) {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.readers))
	p.mu.Unlock()
	for _, r := range all {
		select {
		case r.events <- e:
		case <-r.gone:
		}
	}
}

// output reads one of a process's outputs to its end. A terminal's is over when its process has
// ended and nothing comes any more.
func (p *process) output(from *os.File, name string) {
	defer from.Close()
	buffer, came, left := make([]byte, chunk), true, mostLastWords
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			came = true
			p.publish(event{"data": map[string][]byte{name: slices.Clone(buffer[:n])}})
		}
		switch {
		case err == nil && p.master == from && isClosed(p.child.Ended()):
			if left -= n; left <= 0 {
				return
			}
		case err == nil:
		case p.master == from && came && errors.Is(err, os.ErrDeadlineExceeded):
			came = false
			_ = from.SetReadDeadline(time.Now().Add(lastWords)) // a closed one gives an error
		default: // a terminal's end is an EIO
			return
		}
	}
}

// run waits until the process has ended and all that it printed was read.
func (p *process) run(outputs map[string]*os.File) {
	var reading sync.WaitGroup
	for name, from := range outputs {
		reading.Go(func() { p.output(from, name) })
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		if p.master != nil {
			<-p.child.Ended()
			_ = p.master.SetReadDeadline(time.Now().Add(lastWords)) // not every kernel tells of its end
			return
		}
		select {
		case <-p.killed:
		case <-stop:
			return
		}
		<-p.child.Ended()
		select {
		case <-time.After(killedOutput):
		case <-stop:
		}
		for _, from := range outputs {
			_ = from.SetReadDeadline(time.Now()) // a Read under way ends
		}
	})
	reading.Wait()
	<-p.child.Ended()
	close(stop)
	watching.Wait()
	p.closeInput()
	end := endOf(p.child.Status())
	p.mu.Lock()
	p.end = &end
	p.mu.Unlock()
	close(p.over)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endOf describes how a process ended in the words of Go's os.ProcessState.
func endOf(status syscall.WaitStatus) endEvent {
	if status.Signaled() {
		text := "signal: " + status.Signal().String()
		if status.CoreDump() {
			text += " (core dumped)"
		}
		return endEvent{ExitCode: -1, Status: text, Error: text}
	}
	end := endEvent{ExitCode: status.ExitStatus(), Exited: true, Status: "exit status " + itoa(status.ExitStatus())}
	if end.ExitCode != 0 {
		end.Error = end.Status
	}
	return end
}

// signal sends one to the process and to what it started in its group.
func (p *process) signal(s syscall.Signal) error {
	select {
	case <-p.child.Ended():
		return os.ErrProcessDone
	default:
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		p.killing.Do(func() { close(p.killed) })
	}
	err := syscall.Kill(-p.child.PID(), s)
	if errors.Is(err, syscall.ESRCH) {
		err = syscall.Kill(p.child.PID(), s)
	}
	return err
}

// write gives the process something to read.
func (p *process) write(data []byte) error {
	p.typing.Lock()
	defer p.typing.Unlock()
	p.input.Lock()
	stdin := p.stdin
	p.input.Unlock()
	if stdin == nil {
		return errors.New("stdin not enabled or closed")
	}
	_, err := stdin.Write(data) // closing it ends this
	return err
}

func (p *process) closeInput() {
	p.input.Lock()
	defer p.input.Unlock()
	if p.stdin != nil {
		p.stdin.Close()
		p.stdin = nil
	}
}

// pipe is a pipe whose end ours can be given up while it is waited for; theirs is the
// process's.
func pipe(read bool) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	mine, other := fds[0], fds[1]
	if !read {
		mine, other = fds[1], fds[0]
	}
	if err := unix.SetNonblock(mine, true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(mine), "pipe"), os.NewFile(uintptr(other), "pipe"), nil
}

// ends are the files of a process that is being started: its own, and their other ends.
type ends struct {
	own     []*os.File // closed here once it has them
	files   []uintptr
	stdin   *os.File
	master  *os.File
	outputs map[string]*os.File
}

func (e *ends) close(all bool) {
	for _, f := range e.own {
		f.Close()
	}
	if !all {
		return
	}
	if e.stdin != nil {
		e.stdin.Close()
	}
	for _, f := range e.outputs {
		f.Close()
	}
}

// plain makes the ends of a process without a terminal.
func plain(stdin bool) (*ends, error) {
	e := &ends{outputs: map[string]*os.File{}}
	if stdin {
		ours, theirs, err := pipe(false)
		if err != nil {
			return nil, err
		}
		e.stdin, e.own = ours, append(e.own, theirs)
	} else {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		e.own = append(e.own, null)
	}
	for _, name := range []string{"stdout", "stderr"} {
		ours, theirs, err := pipe(true)
		if err != nil {
			e.close(true)
			return nil, err
		}
		e.outputs[name], e.own = ours, append(e.own, theirs)
	}
	for _, f := range e.own {
		e.files = append(e.files, f.Fd())
	}
	return e, nil
}

// atTerminal makes the ends of a process with one.
func atTerminal(size ptySize) (*ends, error) {
	master, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: size.rows(), Cols: size.cols()}); err != nil {
		return nil, errors.Join(err, master.Close(), theirs.Close())
	}
	// A second descriptor is closed when the output ends; typing goes on through the first.
	e := &ends{own: []*os.File{theirs}, master: master, outputs: map[string]*os.File{"pty": master}}
	for range 3 {
		e.files = append(e.files, theirs.Fd())
	}
	return e, nil
}

// osChild is a [Child] of package os.
type osChild struct {
	pid    int
	ended  chan struct{}
	status syscall.WaitStatus
}

func (c *osChild) PID() int                   { return c.pid }
func (c *osChild) Ended() <-chan struct{}     { return c.ended }
func (c *osChild) Status() syscall.WaitStatus { return c.status }

func startWithOS(path string, argv []string, attr *syscall.ProcAttr) (Child, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	c := &osChild{pid: pid, ended: make(chan struct{})}
	go func() { // it ends with the process, which whoever made the Server ends
		defer close(c.ended)
		for {
			_, err := syscall.Wait4(pid, &c.status, 0, nil)
			if !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	return c, nil
}

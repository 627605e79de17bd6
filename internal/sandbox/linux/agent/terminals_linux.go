package agent

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// defaultTerm is the kind of terminal where none is said.
const defaultTerm = "xterm-256color"

// terminals are those of the box, by their numbers. It is safe for concurrent use.
type terminals struct {
	mu   sync.Mutex // guards what follows; a terminal's own lock is taken after it
	last uint32
	all  map[uint32]*terminal
}

func (t *terminals) get(id uint32) (*terminal, *fault.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.all[id]; one != nil {
		return one, nil
	}
	return nil, fault.New(fault.NotFound, "there is no terminal %d", id).WithHint("its machine may have ended; list the terminals again")
}

// list gives all, the oldest first.
func (t *terminals) list() []*terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Collect(maps.Values(t.all))
	slices.SortFunc(all, func(a, b *terminal) int { return int(a.id) - int(b.id) })
	return all
}

// sessions are those of an instance's terminals, also of those whose program has ended:
// what that left may go on.
func (t *terminals) sessions(in *instance) (all []int) {
	for _, one := range t.list() {
		if one.in == in {
			all = append(all, one.child.pid)
		}
	}
	return all
}

// has reports whether a session is a terminal's.
func (t *terminals) has(session int) bool {
	return slices.ContainsFunc(t.list(), func(one *terminal) bool { return one.child.pid == session })
}

// add takes a new one, which open gives, and forgets those that ended first.
func (t *terminals) add(open func(id uint32) (*terminal, error)) (*terminal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []uint32
	for _, id := range slices.Sorted(maps.Keys(t.all)) {
		if t.all[id].hasEnded() {
			ended = append(ended, id)
		}
	}
	if len(t.all)-len(ended) >= sandbox.MaxTerminals {
		return nil, fault.New(fault.Exhausted, "the machine has %d terminals already", sandbox.MaxTerminals).WithHint("end the programs in some")
	}
	for len(ended) >= sandbox.MaxEndedTerminals {
		delete(t.all, ended[0])
		ended = ended[1:]
	}
	one, err := open(t.last + 1)
	if err != nil {
		return nil, err
	}
	t.last++
	if t.all == nil {
		t.all = map[uint32]*terminal{}
	}
	t.all[one.id] = one
	return one, nil
}

// openTerminal starts a program at a terminal.
func (a *agent) openTerminal(in *instance, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	size, err := checkedSize(spec.Size)
	if err != nil {
		return sandbox.Terminal{}, err
	}
	if len(spec.Command) == 0 || spec.Command[0] == "" {
		return sandbox.Terminal{}, fault.New(fault.Invalid, "a terminal needs a program")
	}
	path, err := in.find(spec.Command[:1])
	if err != nil {
		return sandbox.Terminal{}, err
	}
	one, err := a.terminals.add(func(id uint32) (*terminal, error) { return startTerminal(in, id, path, spec, size) })
	if err != nil {
		return sandbox.Terminal{}, err
	}
	a.loop.Go(one.run)
	return one.describe(), nil
}

func checkedSize(size sandbox.TerminalSize) (sandbox.TerminalSize, error) {
	if size.Rows == 0 || size.Cols == 0 {
		return sandbox.TerminalSize{Rows: 24, Cols: 80}, nil
	}
	if max(size.Rows, size.Cols) > sandbox.MaxTerminalSide {
		return size, fault.New(fault.Invalid, "a terminal has at most %d rows and columns", sandbox.MaxTerminalSide)
	}
	return size, nil
}

// startTerminal starts a program as the leader of a session whose terminal is a new one.
func startTerminal(in *instance, id uint32, path string, spec sandbox.TerminalSpec, size sandbox.TerminalSize) (*terminal, error) {
	master, theirs, err := pty.Open()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the machine has no terminal to give").WithHint("its image has to have /dev/ptmx and /dev/pts").WithCause(err)
	}
	defer theirs.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
		master.Close()
		return nil, fault.New(fault.Unavailable, "the terminal takes no size").WithCause(err)
	}
	dir := spec.Dir
	if dir == "" {
		dir = in.dir
	}
	attr := &syscall.ProcAttr{
		Dir: dir, Env: terminalEnv(in.environ, spec.Env), Files: []uintptr{theirs.Fd(), theirs.Fd(), theirs.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	}
	if in.start.UID != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(in.start.UID), Gid: uint32(in.start.GID)}
		if err := theirs.Chown(in.start.UID, in.start.GID); err != nil {
			master.Close()
			return nil, fault.New(fault.Unavailable, "the terminal cannot be given to the user of the programs").WithCause(err)
		}
	}
	child, err := in.agent.reap.start(path, spec.Command, attr)
	if err != nil {
		master.Close()
		return nil, startError(spec.Command[0], dir, err)
	}
	if err := in.bound(child.pid); err != nil {
		child.signal(syscall.SIGKILL)
	}
	t := &terminal{
		id: id, in: in, master: master, child: child, command: strings.Join(spec.Command, " "), began: time.Now(),
		size: size, viewers: map[*viewer]struct{}{},
	}
	t.change.L = &t.mu
	return t, nil
}

// terminalEnv is an environment with what a terminal adds to it.
func terminalEnv(environ []string, more map[string]string) []string {
	env := map[string]string{"TERM": defaultTerm}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	for name, value := range more {
		if name != "" && !strings.ContainsAny(name+value, "\x00") && !strings.Contains(name, "=") {
			env[name] = value
		}
	}
	if env["TERM"] == "" {
		env["TERM"] = defaultTerm
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// terminal is a program at a terminal, and who looks at it.
type terminal struct {
	id      uint32
	in      *instance // whose program it is
	master  *os.File
	child   *child
	command string
	began   time.Time

	typing sync.Mutex // held by who writes to master

	mu      sync.Mutex // guards what follows
	change  sync.Cond  // of any of it
	screen  ring
	size    sandbox.TerminalSize
	viewers map[*viewer]struct{}
	ended   bool // nothing more comes
}

// viewer is one that is attached.
type viewer struct {
	at   int64 // the offset of what it gets next
	left bool
}

func (t *terminal) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *terminal) describe() sandbox.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := sandbox.Terminal{
		ID: t.id, PID: t.child.pid, Command: t.command, Started: t.began, Size: t.size,
		Attached: len(t.viewers), Printed: t.screen.total, Ended: t.ended,
	}
	if t.ended {
		d.ExitCode = t.child.status.ExitStatus()
		if t.child.status.Signaled() {
			d.ExitCode = 128 + int(t.child.status.Signal())
		}
	}
	return d
}

// lastWords is for how long nothing may come after the program has ended, until nothing
// more is waited for; and mostLastWords how much may come then from what it left behind.
const (
	lastWords     = 50 * time.Millisecond
	mostLastWords = sandbox.TerminalScrollback
)

// run reads what is printed until the program has ended.
func (t *terminal) run() {
	defer func() {
		<-t.child.ended
		t.mu.Lock()
		t.ended = true
		t.change.Broadcast()
		t.mu.Unlock()
		t.master.Close()
	}()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(stop)
	watching.Go(func() {
		select {
		case <-t.child.ended:
			_ = t.master.SetReadDeadline(time.Now().Add(lastWords)) // a Read under way ends
		case <-stop:
		}
	})
	buf := make([]byte, 32<<10)
	for late := 0; late < mostLastWords; {
		t.waitForReader()
		over := isClosed(t.child.ended)
		if over {
			_ = t.master.SetReadDeadline(time.Now().Add(lastWords))
		}
		n, err := t.master.Read(buf)
		t.print(buf[:n])
		if over {
			late += n
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !over {
			continue // it has ended just now
		}
		if err != nil {
			return // no process has the terminal open any more
		}
	}
}

// waitForReader waits while the fastest of those that are attached has not read what would
// have to be forgotten for more.
func (t *terminal) waitForReader() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.viewers) > 0 {
		fastest := int64(0)
		for v := range t.viewers {
			fastest = max(fastest, v.at)
		}
		if t.screen.total-fastest < sandbox.TerminalScrollback/2 {
			return
		}
		t.change.Wait()
	}
}

func (t *terminal) print(p []byte) {
	if len(p) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen.write(p)
	t.change.Broadcast()
}

// join attaches one that wants what was printed from an offset on.
func (t *terminal) join(from int64) *viewer {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := &viewer{at: t.screen.read(from).From}
	t.viewers[v] = struct{}{}
	return v
}

// leave ends that; it works twice.
func (t *terminal) leave(v *viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.left = true
	delete(t.viewers, v)
	t.change.Broadcast()
}

// next waits for what one has not got yet; false: there is nothing more.
func (t *terminal) next(v *viewer) (p []byte, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !v.left && !t.ended && t.screen.total == v.at {
		t.change.Wait()
	}
	if v.left || t.screen.total == v.at {
		return nil, false
	}
	got := t.screen.read(v.at)
	v.at = got.From + int64(len(got.Data))
	t.change.Broadcast()
	return got.Data, true
}

// resize changes the size, and tells the programs at the terminal. gVisor does not tell
// them, and no kernel does where the size is what it was.
func (t *terminal) resize(size sandbox.TerminalSize) error {
	size, err := checkedSize(size)
	if err != nil {
		return err
	}
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended {
		return fault.New(fault.NotFound, "the program in the terminal %d has ended", t.id)
	}
	if err := pty.Setsize(t.master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return fault.New(fault.NotFound, "the program in the terminal %d has ended", t.id).WithCause(err)
	}
	t.mu.Lock()
	t.size = size
	t.mu.Unlock()
	for _, p := range descendants() {
		if p.session == t.child.pid {
			_ = syscall.Kill(p.pid, syscall.SIGWINCH) // one that has ended needs it no more
		}
	}
	return nil
}

// attach carries bytes between a terminal and a stream until one of the two is over.
func (a *agent) attach(id uint32, s *wire.Stream, body wire.DialBody) {
	t, f := a.terminals.get(body.Terminal)
	if f != nil {
		a.send(wire.KindDialed, id, wire.DialedBody{StatusBody: wire.ErrorBody(f)})
		s.Close()
		return
	}
	v := t.join(body.From)
	a.send(wire.KindDialed, id, wire.DialedBody{From: v.at})
	var both sync.WaitGroup
	both.Go(func() { t.takeFrom(s) })
	both.Go(func() {
		s.Wait()
		t.leave(v)
	})
	for {
		p, more := t.next(v)
		if !more {
			break
		}
		if _, err := s.Write(p); err != nil {
			s.Close()
		}
	}
	if t.hasEnded() && s.CloseWrite() == nil {
		s.Wait() // until the other end has it
	}
	s.Close()
	both.Wait()
}

// typeTime is how long a program that reads nothing is waited for until it is looked
// whether anybody still wants that.
const typeTime = time.Second

// takeFrom types what comes, until nothing more does.
func (t *terminal) takeFrom(s *wire.Stream) {
	buf := make([]byte, 4<<10)
	for {
		n, err := s.Read(buf)
		if n > 0 && !t.typed(s, buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// typed reports whether the terminal has taken what one types.
func (t *terminal) typed(s *wire.Stream, p []byte) bool { return t.typedWhile(p, s.Over) }

// typedAll is typed for who waits until a program has read all of it, or the terminal is
// closed.
func (t *terminal) typedAll(p []byte) bool { return t.typedWhile(p, func() bool { return false }) }

func (t *terminal) typedWhile(p []byte, over func() bool) bool {
	t.typing.Lock()
	defer t.typing.Unlock()
	for len(p) > 0 {
		settings := t.settings()
		most := untilSignal(p, settings)
		if most == 0 {
			if t.typeSignal(p[0], settings) {
				p = p[1:]
				continue
			}
			most = 1 // the program has not read what was typed before: as gVisor does it
		}
		_ = t.master.SetWriteDeadline(time.Now().Add(typeTime)) // of one that is closed the write says so
		n, err := t.master.Write(p[:most])
		p = p[n:]
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || over()) {
			return false
		}
	}
	return true
}

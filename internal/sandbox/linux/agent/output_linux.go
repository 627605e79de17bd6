package agent

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// floodFactor is how far beyond its limit a program may print before it is
// stopped.
const floodFactor = 64

// piece is how much output one frame carries.
const piece = 64 << 10

// output carries what an instance's programs print: to the server while there is
// a run, up to the run's limits and no faster than the server takes it; and into
// a ring that keeps the newest between runs.
type output struct {
	conn *wire.Conn
	id   uint32
	ctl  *control

	mu      sync.Mutex // guards what follows
	on      bool       // there is a run
	streams [2]stream  // stdout, stderr
	shown   int64      // bytes of displays
	show    int64      // their limit
	tail    []byte     // the end of what the run printed on stderr
	credit  int
	between ring
	news    chan struct{} // holds one token when credit may have come
}

type stream struct {
	limit, printed int64
	cut            bool
}

func newOutput(conn *wire.Conn, id uint32, ctl *control) *output {
	return &output{conn: conn, id: id, ctl: ctl, news: make(chan struct{}, 1)}
}

// begin sets the limits of a run.
func (o *output) begin(limits sandbox.RunLimits) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on, o.credit, o.tail = true, wire.Window, o.tail[:0]
	o.streams = [2]stream{{limit: limits.StdoutBytes}, {limit: limits.StderrBytes}}
	o.shown, o.show = 0, limits.DisplayBytes
}

// end says what of the run's output was cut, and gives the end of its stderr.
func (o *output) end() (stdout, stderr bool, tail string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on = false
	return o.streams[0].cut, o.streams[1].cut, string(o.tail)
}

// tailBytes is how much of a run's stderr is looked at to tell what failed.
const tailBytes = 4 << 10

// aside is the number of a stream that is no run's: what processes print whose
// kernel is gone.
const aside = 2

// write takes what was printed on stdout (0) or stderr (1), or aside. It takes everything,
// whatever becomes of it: a program is not told of its limits.
func (o *output) write(which int, p []byte) {
	o.mu.Lock()
	if !o.on || which == aside {
		o.between.write(p)
		o.mu.Unlock()
		return
	}
	s := &o.streams[which]
	s.printed += int64(len(p))
	if which == 1 {
		o.tail = append(o.tail, p...)
		o.tail = append(o.tail[:0], o.tail[max(0, len(o.tail)-tailBytes):]...)
	}
	flood := false
	if s.limit > 0 && s.printed > s.limit {
		s.cut = true
		p = p[:max(0, int64(len(p))-(s.printed-s.limit))]
		flood = s.printed/floodFactor > s.limit
	}
	o.mu.Unlock()
	if flood {
		o.ctl.interrupt(sandbox.OutputExceeded)
	}
	_, hard := o.ctl.stops()
	for len(p) > 0 {
		n := o.reserve(min(len(p), piece), hard)
		if n == 0 {
			o.mu.Lock()
			s.cut = true
			o.mu.Unlock()
			return
		}
		if o.conn.Write(wire.KindStdout+wire.Kind(which), o.id, p[:n]) != nil {
			return // the server is gone, and the box soon will be
		}
		p = p[n:]
	}
}

// reserve waits until something may be sent, and gives how much of n; 0 when
// stop was closed meanwhile.
func (o *output) reserve(n int, stop <-chan struct{}) int {
	for {
		o.mu.Lock()
		n := min(n, o.credit)
		o.credit -= n
		o.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-o.news:
		case <-stop:
			return 0
		}
	}
}

// grant is called when the server has passed on n bytes.
func (o *output) grant(n int) {
	o.mu.Lock()
	o.credit = min(o.credit+max(n, 0), wire.Window)
	o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// display sends something to look at, and tells whether the limit allowed it.
func (o *output) display(mime string, head, data []byte) bool {
	o.mu.Lock()
	allowed := o.on && int64(len(data)) <= o.show-o.shown && len(mime) <= 200
	if allowed {
		o.shown += int64(len(data))
	}
	o.mu.Unlock()
	return allowed && o.conn.Write(wire.KindDisplay, o.id, head, []byte{'\n'}, data) == nil
}

// printed gives what was printed between runs.
func (o *output) printed(from int64) sandbox.Printed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.between.read(from)
}

// ring keeps the newest of what is written into it.
type ring struct {
	data  []byte
	total int64 // bytes ever written
}

func (r *ring) write(p []byte) {
	r.total += int64(len(p))
	r.data = append(r.data, p[max(0, len(p)-wire.MaxPrinted):]...)
	if n := len(r.data) - wire.MaxPrinted; n > 0 {
		r.data = append(r.data[:0], r.data[n:]...)
	}
}

func (r *ring) read(from int64) sandbox.Printed {
	first := r.total - int64(len(r.data))
	from = min(max(from, first), r.total)
	return sandbox.Printed{Data: append([]byte(nil), r.data[from-first:]...), From: from}
}

// pump reads one of a kernel's output pipes until nobody has it open any more.
type pump struct {
	out  *output
	pipe *os.File
	size int // how much the pipe holds
	done chan struct{}

	mu    sync.Mutex // held from reading something until it has been passed on
	which int
	buf   []byte
}

// newPump makes a pipe and reads from it; the other end is for the kernel.
func newPump(out *output, which int) (p *pump, theirs *os.File, err error) {
	ours, theirs, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	size, err := unix.FcntlInt(uintptr(ours), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		size = 64 << 10
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ours)
		theirs.Close()
		return nil, nil, err
	}
	p = &pump{out: out, which: which, size: size, done: make(chan struct{}), buf: make([]byte, piece)}
	p.pipe = os.NewFile(uintptr(ours), "output")
	go p.run()
	return p, theirs, nil
}

// pipe makes one whose ends are not inherited: one to read here, and one that
// blocks.
func pipe() (ours int, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, nil, fmt.Errorf("making a pipe: %w", err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func (p *pump) run() {
	defer close(p.done)
	defer p.pipe.Close()
	raw, err := p.pipe.SyscallConn()
	for err == nil {
		more := false
		err = raw.Read(func(fd uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			n, failed := unix.Read(int(fd), p.buf)
			if failed == unix.EAGAIN {
				return false
			}
			more = n > 0 || failed == unix.EINTR
			p.pass(n)
			return true
		})
		if !more {
			return
		}
	}
}

func (p *pump) pass(n int) {
	if n > 0 {
		p.out.write(p.which, p.buf[:n])
	}
}

// drain passes on what was written before: whatever is in the pipe now. What a
// process in the background goes on writing is not waited for.
func (p *pump) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return // it is closed: all of it has been passed on
	}
	_ = raw.Control(func(fd uintptr) {
		for left := p.size; left > 0; {
			n, err := unix.Read(int(fd), p.buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return
			}
			p.pass(n)
			left -= n
		}
	})
}

// divert lets what comes from now on be no run's.
func (p *pump) divert() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.which = aside
}

// close ends it, whoever still has the pipe open.
func (p *pump) close() {
	p.pipe.Close()
	<-p.done
}

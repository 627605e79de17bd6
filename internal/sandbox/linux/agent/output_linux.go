package agent

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// output carries what an instance's programs print: to the server while there is
// a run, and into a ring that keeps the newest between runs.
type output struct {
	*serve.Output

	mu      sync.Mutex // guards what follows
	between ring
}

// aside is the number of a stream that is not a run's: what processes print whose
// kernel is gone.
const aside = 2

// write takes what was printed on stdout (0) or stderr (1), or aside.
func (o *output) write(which int, p []byte) {
	if which != aside {
		p = o.Write(which, p)
	}
	if len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.between.write(p)
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
	p = &pump{out: out, which: which, size: size, done: make(chan struct{}), buf: make([]byte, serve.Piece)}
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

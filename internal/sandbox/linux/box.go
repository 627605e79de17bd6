//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"paddock/internal/ipc"
	"paddock/internal/sandbox/linux/gvisorfix"
)

// wireFD is the descriptor on which a box's first program finds the server.
const wireFD = 3

// box is a gVisor sandbox: a sentry, a gofer, and a connection to the first
// program in it. It is over when any of its parts is.
type box struct {
	plan    *plan
	sentry  *part
	gofer   *part
	stream  net.Conn // to the first program
	control *urpc.Client
	cgroup  *cgroup // nil: none
	done    chan struct{}
	end     sync.Once
	starved bool // the kernel ended processes of it, for they had too much memory; known when it is done

	sleeping sync.Mutex    // held by whoever stops the sentry, or has it go on
	resting  atomic.Bool   // the sentry is stopped
	traffic  atomic.Uint64 // how often something was sent or read
	woken    chan struct{} // holds a token when the sentry was told to go on

	changes *changes // from outside, that the sentry is told of; nil: it is told of none
}

// launcher is what all boxes of a backend have in common.
type launcher struct {
	parent   parent
	dir      string // for sockets and overlays, which have no name for longer than a moment
	uid, gid int    // whom boxes are on the host when paddock is root
	platform string
	inherit  *os.File
	debug    io.Writer // takes what the sentries say; nil: nothing
}

// boot starts a box and its first program. ctx bounds it. When it fails nothing
// is left.
func (l *launcher) boot(ctx context.Context, p *plan, cg *cgroup) (*box, error) {
	b := &box{plan: p, cgroup: cg, done: make(chan struct{}), woken: make(chan struct{}, 1)}
	if err := b.start(ctx, l); err != nil {
		said := b.close()
		if ctx.Err() == nil && said != "" {
			err = fmt.Errorf("%w; %s", err, said)
		}
		return nil, err
	}
	go b.watch()
	return b, nil
}

// start does boot's work; what it leaves half done close takes apart.
func (b *box) start(ctx context.Context, l *launcher) error {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	exports := b.plan.exports()
	sentryEnds, goferEnds := make([]*os.File, len(exports)), make([]*os.File, len(exports))
	for n := range exports {
		var err error
		if sentryEnds[n], goferEnds[n], err = rawPair(); err != nil {
			return err
		}
		open = append(open, sentryEnds[n], goferEnds[n])
	}
	who, attr := identities(l.uid, l.gid)
	var err error
	b.gofer, err = l.parent.startPart(goferRole, attr, goferEnds, l.inherit, nil, goferSetup{Who: who, Steps: b.plan.steps(), Exports: exports})
	if err != nil {
		return err
	}
	socket, path, err := l.listen(b.plan.id)
	if err != nil {
		return err
	}
	open = append(open, socket, removed(path))
	booted, err := b.startSentry(l, sentryEnds, socket)
	if err != nil {
		return err
	}
	open = append(open, booted)
	if err := b.proceed(ctx); err != nil {
		return err
	}
	if err := await(ctx, booted); err != nil {
		return fmt.Errorf("the sentry did not boot: %w", err)
	}
	// From here on nothing but the sentry listens: a connection that it has not accepted
	// ends with it.
	socket.Close()
	return b.startRoot(ctx, l, path)
}

// startSentry gives the end of a pipe that tells when it has booted.
func (b *box) startSentry(l *launcher, folders []*os.File, control *os.File) (booted *os.File, err error) {
	var h hand
	defer h.close()
	// It is the first one: a saved box finds its connection by the number.
	stream, theirs, failed := socketPair()
	if failed != nil {
		return nil, failed
	}
	b.stream = wakingConn{stream, b}
	h.own = append(h.own, theirs)
	h.pass(theirs, wireFD)
	h.give("io-fds", folders...)
	h.give("controller-fd", control)
	open := func(flag string, f *os.File, failed error) {
		if err = errors.Join(err, failed); failed == nil {
			h.own = append(h.own, f)
			h.give(flag, f)
		}
	}
	for range 3 {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		open("stdio-fds", null, err)
	}
	spec, failed := memoryFile("spec", b.plan.oci())
	open("spec-fd", spec, failed)
	if b.plan.agent == "" {
		program, failed := os.Open(executable)
		open("exec-fd", program, failed)
	}
	booted, sync, failed := os.Pipe()
	open("start-sync-fd", sync, failed)
	if b.plan.overlayBytes > 0 {
		store, failed := l.nameless()
		open("gofer-filestore-fds", store, failed)
	}
	if err == nil {
		who, attr := identities(l.uid, l.gid)
		setup := sentrySetup{Who: who, Args: b.bootArgs(l, h.flags), Ahead: b.plan.ahead(), Cached: b.plan.cached()}
		if b.changes = newChanges(setup.Cached); b.changes != nil {
			setup.Page = firstFile + len(h.files)
			h.files = append(h.files, b.changes.file)
		}
		b.sentry, err = l.parent.startPart(sentryRole, attr, h.files, l.inherit, l.debug, setup)
	}
	if err != nil {
		booted.Close() // also none
		return nil, err
	}
	return booted, nil
}

// bootArgs are the command line of gVisor's boot.
func (b *box) bootArgs(l *launcher, files []string) []string {
	args := append(settings(l.platform, l.debug != nil), "boot", "--bundle=/", "--gofer-mount-confs="+b.plan.mountConfs())
	shmem, defrag := gvisorfix.HugePageSettings()
	args = append(args, "--host-thp-shmem-enabled="+shmem, "--host-thp-defrag="+defrag)
	args = append(args, files...)
	if b.plan.cpus > 0 {
		args = append(args, "--cpu-num="+strconv.Itoa(b.plan.cpus))
	}
	if b.plan.memory > 0 {
		memory := strconv.FormatInt(b.plan.memory, 10)
		args = append(args, "--total-memory="+memory, "--total-host-memory="+memory)
	}
	return append(args, b.plan.id)
}

// proceed waits for both parts, gives them their bounds and lets them go on.
func (b *box) proceed(ctx context.Context) error {
	for _, c := range []*part{b.sentry, b.gofer} {
		if err := b.cgroup.add(c.cmd.Process.Pid); err != nil {
			return err
		}
	}
	for _, c := range []*part{b.gofer, b.sentry} {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	return errors.Join(b.gofer.proceed(), b.sentry.proceed())
}

// startRoot starts the box's first program.
func (b *box) startRoot(ctx context.Context, l *launcher, path string) error {
	var err error
	if b.control, err = l.connect(path); err != nil {
		return fmt.Errorf("connecting to the sentry: %w", err)
	}
	// A call waits for its answer, or for the end of the sentry, and for nothing else.
	stop := context.AfterFunc(ctx, func() { _ = b.sentry.cmd.Process.Kill() })
	defer stop()
	links := boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	if err := b.control.Call(boot.NetworkCreateLinksAndRoutes, &links, nil); err != nil {
		return fmt.Errorf("making the loopback network: %w", errors.Join(context.Cause(ctx), err))
	}
	if b.plan.state != nil {
		return b.restore(ctx, l, path)
	}
	if err := b.control.Call(boot.ContMgrRootContainerStart, &b.plan.id, nil); err != nil {
		return fmt.Errorf("starting the first program: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// watch ends the box when one of its parts has ended.
func (b *box) watch() {
	select {
	case <-b.sentry.ended:
	case <-b.gofer.ended:
	}
	b.close()
}

// close ends everything, waits for it, and tells what the sentry complained
// about first. It
// works twice, on a half-built box, and from several goroutines.
func (b *box) close() (said string) {
	b.end.Do(func() {
		defer close(b.done)
		if b.gofer != nil {
			_ = b.gofer.cmd.Process.Kill() // it ends while the sentry does
		}
		for _, c := range []*part{b.sentry, b.gofer} {
			if c != nil {
				c.kill()
			}
		}
		if b.stream != nil {
			b.stream.Close()
		}
		if b.control != nil {
			b.control.Close()
		}
		b.changes.close()
		b.starved = b.cgroup.starved()
		b.cgroup.remove()
		b.plan.root.release()
	})
	<-b.done
	if b.sentry == nil {
		return ""
	}
	return b.sentry.said.line()
}

// listen makes the socket on which the sentry takes orders.
func (l *launcher) listen(id string) (socket *os.File, path string, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	socket = os.NewFile(uintptr(fd), "control")
	path = filepath.Join(l.dir, id+".sock")
	if err = ipc.ShortPath(path, func(short string) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: short}) }); err != nil {
		socket.Close()
		return nil, "", fmt.Errorf("making the control socket: %w", err)
	}
	return socket, path, nil
}

func (l *launcher) connect(path string) (c *urpc.Client, err error) {
	err = gvisorfix.OwnFiles(func() error {
		return ipc.ShortPath(path, func(short string) error { c, err = client.ConnectTo(short); return err })
	})
	return c, err
}

// nameless is an empty file in the launcher's folder that is gone when it is closed.
func (l *launcher) nameless() (*os.File, error) {
	f, err := os.CreateTemp(l.dir, "overlay-")
	if err != nil {
		return nil, fmt.Errorf("making the overlay's file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// await waits for a byte.
func await(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// removed is a path that is removed when it is closed.
type removed string

func (r removed) Close() error { return os.Remove(string(r)) }

// complaint keeps the beginning of what is written to it. It is safe for
// concurrent use.
type complaint struct {
	mu    sync.Mutex
	first []byte
	also  io.Writer // nil: nobody
}

func (c *complaint) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := maxComplaint - len(c.first); room > 0 { // one that has been taken over may write anything
		c.first = append(c.first, p[:min(room, len(p))]...)
	}
	if c.also != nil {
		_, _ = c.also.Write(p)
	}
	return len(p), nil
}

// line is the first one.
func (c *complaint) line() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, _, _ := bytes.Cut(bytes.TrimSpace(c.first), []byte("\n"))
	return string(line)
}

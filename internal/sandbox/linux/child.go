//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/linux/gvisorfix"
)

// guestID is the user and group of everything inside a box, and of the sentry and
// the gofer in their user namespace.
const guestID = 1000

// executable is this program, even where its file has been replaced since. Tests
// change it, before anything is started.
var executable = "/proc/self/exe"

// parent starts processes that end with this one. The kernel ties them to the
// thread that starts them, so it is one that does nothing else; its zero value
// works. It is safe for concurrent use.
type parent struct {
	// skipMembarrier says that what it starts has no use for private barriers of memory;
	// see gvisorfix.SkipMembarrier.
	skipMembarrier bool

	once  sync.Once
	start chan func()
	ended chan struct{}
}

// run calls f on the thread, one f at a time.
func (p *parent) run(f func()) {
	p.once.Do(func() {
		p.start, p.ended = make(chan func()), make(chan struct{})
		go func() {
			defer close(p.ended)
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			if p.skipMembarrier {
				gvisorfix.SkipMembarrier()
			}
			for f := range p.start {
				f()
			}
		}()
	})
	done := make(chan struct{})
	p.start <- func() { defer close(done); f() }
	<-done
}

// close ends the thread, and with it what it started and what still lives. Nobody
// may call run any more.
func (p *parent) close() {
	p.once.Do(func() { p.start, p.ended = make(chan func()), make(chan struct{}); close(p.ended) })
	close(p.start)
	<-p.ended
}

// part is one process of a box: its sentry or its gofer.
type part struct {
	role   string
	cmd    *exec.Cmd
	socket net.Conn      // for the set-up
	said   *complaint    // on its standard error
	ended  chan struct{} // closed when the process has been waited for
}

// identities gives whom parts become, and the maps of their user namespace: as
// root paddock gives them another user's identity, uid and gid, else it has only
// its own to give.
func identities(uid, gid int) (identity, *syscall.SysProcAttr) {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if os.Geteuid() != 0 {
		attr.Credential = &syscall.Credential{Uid: guestID, Gid: guestID, NoSetGroups: true}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: guestID, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: guestID, HostID: os.Getegid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT}
		return identity{ID: guestID}, attr
	}
	attr.Credential = &syscall.Credential{}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: guestID, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: guestID, HostID: gid, Size: 1}}
	attr.GidMappingsEnableSetgroups = true
	return identity{ID: guestID, Change: true}, attr
}

// startPart starts a process and tells it how to set itself up. The files become
// its own from firstFile on; they stay the caller's to close. inherit is open in
// it as well, where it has no use for it; nil: nothing. log takes what it says.
func (p *parent) startPart(role string, attr *syscall.SysProcAttr, files []*os.File, inherit *os.File, log io.Writer, setup any) (*part, error) {
	body, err := json.Marshal(setup)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: executable, Args: []string{role}, Dir: "/", Env: []string{}, SysProcAttr: attr,
		ExtraFiles: append([]*os.File{theirs}, files...),
	}
	if inherit != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, inherit)
	}
	c := &part{role: role, cmd: cmd, socket: ours, said: &complaint{also: log}, ended: make(chan struct{})}
	cmd.Stderr = c.said
	p.run(func() { err = cmd.Start() })
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the %s: %w", strings.TrimPrefix(role, "paddock-"), err)
	}
	// Where the machine has no memory left a box goes, not the server.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("500"), 0)
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ended is seen by whoever waits for an answer
	}()
	frame := append(binary.NativeEndian.AppendUint32(nil, uint32(len(body))), body...)
	if _, err := ours.Write(frame); err != nil {
		c.kill()
		return nil, fmt.Errorf("telling the %s its set-up: %w", role, err)
	}
	return c, nil
}

// maxComplaint bounds what a part may say about why it could not begin.
const maxComplaint = 4 << 10

// ready waits until the part is.
func (c *part) ready(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	answer := make([]byte, maxComplaint)
	n, err := c.socket.Read(answer)
	if n == 1 && answer[0] == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n > 0 {
		return errors.New(strings.TrimSpace(string(answer[:n])))
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("it ended at once")
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(c.role, "paddock-"), err)
}

// proceed lets the part go on.
func (c *part) proceed() error {
	_, err := c.socket.Write([]byte{1})
	return errors.Join(err, c.socket.Close())
}

// kill ends the process and waits for it.
func (c *part) kill() {
	c.socket.Close()
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// socketPair makes a connection of which one end is for this process and one for
// another.
func socketPair() (net.Conn, *os.File, error) {
	a, b, err := rawPair()
	if err != nil {
		return nil, nil, err
	}
	conn, err := net.FileConn(a)
	a.Close()
	if err != nil {
		b.Close()
		return nil, nil, fmt.Errorf("using a socket: %w", err)
	}
	return conn, b, nil
}

func rawPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "here"), os.NewFile(uintptr(fds[1]), "there"), nil
}

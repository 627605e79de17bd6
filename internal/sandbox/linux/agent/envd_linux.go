package agent

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/internal/envd"
	"paddock/internal/fault"
	"paddock/internal/sandbox/wire"
)

// The daemon of package envd is a part of the agent: no port of the box leads to it, but
// only streams of the server. What it starts belongs to no interpreter and ends with the box.

// daemon is the box's; its zero value has not begun.
type daemon struct {
	mu     sync.Mutex // guards what follows
	envd   *envd.Server
	conns  chan net.Conn
	server *http.Server
	ended  chan struct{}
	over   bool // the agent ends
}

// sudoFolder is where a box has what looks like sudo.
const sudoFolder = "/dev/paddock"

// serveEnvd serves the daemon on a stream.
func (a *agent) serveEnvd(id uint32, s *wire.Stream) {
	if !a.beginEnvd() {
		a.send(wire.KindDialed, id, wire.ErrorBody(fault.New(fault.Unavailable, "the machine is ending")))
		s.Close()
		return
	}
	a.send(wire.KindDialed, id, wire.StatusBody{})
	select {
	case a.daemon.conns <- &envdConn{Stream: s}:
	case <-a.daemon.ended:
		s.Close()
	}
}

// beginEnvd has the daemon serve; false: it does not any more.
func (a *agent) beginEnvd() bool {
	d := &a.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.server != nil {
		return !d.over
	}
	home, user := "/tmp", "sandbox"
	if there, err := os.ReadFile("/etc/passwd"); err == nil {
		home, user = homeIn(string(there), home, user)
	}
	d.envd = envd.New(envd.Config{
		Start: a.startForEnvd, Users: map[string]string{user: home, "root": "/root"}, Default: user, Env: a.envdEnvironment(home),
		Resized: a.resized, Type: a.typeFor,
	})
	d.conns, d.ended = make(chan net.Conn), make(chan struct{})
	d.server = &http.Server{Handler: d.envd, ReadHeaderTimeout: time.Minute}
	a.passing.Go(func() { _ = d.server.Serve(&streamListener{d}) }) // it ends when it is closed
	return true
}

// endEnvd ends the daemon; what it started has ended.
func (a *agent) endEnvd() {
	d := &a.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over = true; d.server == nil {
		return
	}
	close(d.ended)
	_ = d.server.Close() // the streams have ended
	d.envd.Close()
}

// homeIn finds this process's user in a list of users.
func homeIn(list, home, name string) (string, string) {
	for line := range strings.Lines(list) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 5 && f[2] == strconv.Itoa(os.Getuid()) {
			return f[5], f[0]
		}
	}
	return home, name
}

// envdEnvironment is what the daemon's processes begin with: that of the interpreters, which
// has the ways out of the box.
func (a *agent) envdEnvironment(home string) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, in := range a.loop.Instances() {
		for _, pair := range in.environ {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
	}
	if _, err := os.Stat(sudoFolder + "/sudo"); err == nil {
		env["PATH"] += ":" + sudoFolder
	}
	env["HOME"], env["SHELL"] = home, "/bin/bash"
	return env
}

// startForEnvd starts a process for the daemon, within the bounds of an interpreter.
func (a *agent) startForEnvd(path string, argv []string, attr *syscall.ProcAttr) (envd.Child, error) {
	all := a.loop.Instances()
	if len(all) == 0 {
		return nil, errors.New("the machine is ending")
	}
	c, err := a.reap.start(path, argv, attr)
	if err != nil {
		return nil, err
	}
	if err := all[0].bound(c.pid); err != nil {
		c.signal(syscall.SIGKILL)
	}
	return envdChild{c}, nil
}

// envdChild is a process as the daemon sees it.
type envdChild struct{ *child }

// PID implements [envd.Child].
func (c envdChild) PID() int { return c.pid }

// Ended implements [envd.Child].
func (c envdChild) Ended() <-chan struct{} { return c.ended }

// Status implements [envd.Child].
func (c envdChild) Status() syscall.WaitStatus { return c.status }

// resized tells the programs at a terminal, whose first one is leader, of its size.
func (a *agent) resized(leader int) {
	for _, p := range descendants() {
		if p.session == leader {
			_ = syscall.Kill(p.pid, syscall.SIGWINCH) // one that has ended needs it no more
		}
	}
}

// typeFor types at a terminal of the daemon's as at the agent's own. It gives what the
// terminal shows of that by itself.
func (a *agent) typeFor(master *os.File, data []byte) (shown []byte, err error) {
	t := &terminal{master: master}
	t.change.L = &t.mu
	if !t.typedAll(data) {
		return nil, os.ErrClosed
	}
	return t.screen.read(0).Data, nil
}

// streamListener gives the server the streams of the daemon.
type streamListener struct{ d *daemon }

// Accept implements [net.Listener].
func (l *streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.d.conns:
		return c, nil
	case <-l.d.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *streamListener) Close() error { return nil }

// Addr implements [net.Listener].
func (l *streamListener) Addr() net.Addr { return boxAddr{} }

// boxAddr is the address of both ends of a stream.
type boxAddr struct{}

func (boxAddr) Network() string { return "paddock" }
func (boxAddr) String() string  { return "sandbox" }

// envdConn is a stream as a connection.
type envdConn struct{ *wire.Stream }

func (c *envdConn) LocalAddr() net.Addr  { return boxAddr{} }
func (c *envdConn) RemoteAddr() net.Addr { return boxAddr{} }

// Close ends the stream in an orderly way.
func (c *envdConn) Close() error {
	return errors.Join(c.CloseWrite(), c.Stream.Close())
}

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts processes and sees them end: those that the agent started, and
// those whose parents are gone, which the agent inherits. It is safe for
// concurrent use.
type reaper struct {
	chld chan os.Signal
	done chan struct{}

	mu      sync.Mutex // guards what follows; held while a process is being started
	waiting map[int]*child
}

// child is a process that somebody waits for.
type child struct {
	reap  *reaper
	pid   int
	ended chan struct{} // closed when it has ended; status and usage are there then

	status syscall.WaitStatus
	usage  syscall.Rusage
}

func newReaper() (*reaper, error) {
	// Pid 1 inherits orphans anyway; elsewhere this makes it so.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && os.Getpid() != 1 {
		return nil, fmt.Errorf("inheriting orphans: %w", err)
	}
	r := &reaper{chld: make(chan os.Signal, 1), done: make(chan struct{}), waiting: map[int]*child{}}
	signal.Notify(r.chld, syscall.SIGCHLD)
	go r.run()
	return r, nil
}

func (r *reaper) run() {
	defer close(r.done)
	for range r.chld {
		r.look()
	}
}

// look takes every process that has ended.
func (r *reaper) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
		if c := r.waiting[pid]; c != nil {
			delete(r.waiting, pid)
			c.status, c.usage = status, usage
			close(c.ended)
		}
	}
}

// close stops looking. Nothing that was started may be left.
func (r *reaper) close() {
	signal.Stop(r.chld)
	close(r.chld)
	<-r.done
	r.look()
}

// start starts a program as the leader of a session of its own.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	return r.watchLocked(pid), nil
}

func (r *reaper) watchLocked(pid int) *child {
	c := &child{reap: r, pid: pid, ended: make(chan struct{})}
	r.waiting[pid] = c
	return c
}

// adopt waits for a process of a session, which is the agent's own or about to
// become that. One that is not of the session, or not there, has ended when this
// returns.
func (r *reaper) adopt(pid, session int) *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := readProc(pid)
	if c := r.waiting[pid]; c != nil && p.session == session {
		return c
	}
	if err != nil || p.zombie || p.session != session {
		c := &child{reap: r, pid: pid, ended: make(chan struct{})}
		close(c.ended)
		return c
	}
	return r.watchLocked(pid)
}

// signal sends one to the process, unless it has ended.
func (c *child) signal(s syscall.Signal) {
	c.reap.mu.Lock() // while it is held nobody gets the same number
	defer c.reap.mu.Unlock()
	if !isClosed(c.ended) {
		_ = syscall.Kill(c.pid, s)
	}
}

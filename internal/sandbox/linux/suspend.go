//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// suspendPolicy is when a machine in which nothing works is stopped, and looked after then.
type suspendPolicy struct {
	// quiet is for how long nothing may be sent to it, and then, for as long again,
	// nothing may run in it.
	quiet time.Duration
	// peek is how often one that is stopped may go on for a moment, so that what was
	// due meanwhile is done; look is how long nothing may run then until it is stopped
	// again.
	peek, look time.Duration
}

// defaultSuspendPolicy has a program that sleeps for longer than quiet, and has no process
// beside its interpreter, be late by peek at most. A moment of going on takes some
// 5 ms of a processor.
var defaultSuspendPolicy = suspendPolicy{quiet: 2 * time.Second, peek: 30 * time.Second, look: 50 * time.Millisecond}

// An idle sentry takes 2.5 to 4 hundredths of a processor. With more than a part of
// kernelPart it does something for its programs, which wait for it.
const kernelPart = 4

// idleSuspender stops the sentry of one machine while nothing works in it, until it is
// closed: nobody waits for anything of it, no process lives beside its interpreters,
// and none of them has used the processor. What is sent to the machine wakes it
// first; see line.
type idleSuspender struct {
	machine *machine
	rhythm  suspendPolicy
	stop    context.CancelFunc
	stopped chan struct{}
}

// newIdleSuspender begins with a machine; with one whose programs cannot be told from its
// sentry it does nothing.
func newIdleSuspender(m *machine, b *Backend) *idleSuspender {
	ctx, stop := context.WithCancel(context.Background())
	d := &idleSuspender{machine: m, rhythm: b.rhythm, stop: stop, stopped: make(chan struct{})}
	if b.launcher.platform != "systrap" {
		close(d.stopped)
		return d
	}
	go d.run(ctx)
	return d
}

// close ends it and waits. It works twice, and leaves the machine as it is.
func (d *idleSuspender) close() {
	d.stop()
	<-d.stopped
}

func (d *idleSuspender) run(ctx context.Context) {
	defer close(d.stopped)
	box := d.machine.box
	seen := box.traffic.Load()
	for d.pause(ctx, d.rhythm.quiet) {
		// One that rests by order has nothing to do in it.
		if now := box.traffic.Load(); now == seen && !box.resting.Load() && d.waitUntilIdle(ctx, d.rhythm.quiet) {
			d.sleep(ctx)
		}
		seen = box.traffic.Load()
	}
}

// pause waits, and tells whether there is anything left to be looked after.
func (d *idleSuspender) pause(ctx context.Context, long time.Duration) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.machine.box.done:
	}
	return false
}

// waitUntilIdle stops the sentry if nothing runs in the machine for so long.
func (d *idleSuspender) waitUntilIdle(ctx context.Context, long time.Duration) bool {
	client, box := d.machine.client, d.machine.box
	if !client.Quiet() {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, answerTime)
	working, err := client.Working(asking)
	cancel()
	if working || err != nil {
		return false
	}
	seen := box.traffic.Load()
	var pids []int
	for _, p := range family(box.sentry.cmd.Process.Pid) {
		pids = append(pids, p.pid)
	}
	before, ok := effortOf(pids)
	if !ok || !d.pause(ctx, long) {
		return false
	}
	after, ok := effortOf(pids)
	if !ok || after.programs != before.programs || after.kernel-before.kernel > long/kernelPart || starved(pids) || !client.Quiet() {
		return false
	}
	return box.suspendIfIdle(seen)
}

// sleep has a stopped machine go on for a moment from time to time, until somebody
// has woken it, or something works in it.
func (d *idleSuspender) sleep(ctx context.Context) {
	box := d.machine.box
	for {
		t := time.NewTimer(d.rhythm.peek)
		select {
		case <-box.woken:
			t.Stop()
			if box.resting.Load() {
				continue // that was before
			}
			return
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		case <-box.done:
			t.Stop()
			return
		}
		box.wake()
		for began := time.Now(); !d.waitUntilIdle(ctx, d.rhythm.look); {
			if ctx.Err() != nil || time.Since(began) > d.rhythm.quiet {
				return
			}
		}
	}
}

// effort is processor time.
type effort struct{ kernel, programs time.Duration }

// effortOf is what a sentry, the first of these processes, and its programs, the
// others, have taken to the nanosecond; of one that has ended nothing. It is not known
// where the host's kernel does not tell.
func effortOf(pids []int) (e effort, ok bool) {
	for n, pid := range pids {
		took := ranOf(pid)
		if n == 0 {
			e.kernel = took
			continue
		}
		e.programs += took
	}
	return e, len(pids) > 1 && e.kernel > 0
}

// ranOf is the processor time of a process's threads: the first number of each
// thread's schedstat.
func ranOf(pid int) (sum time.Duration) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		ran, _ := strconv.ParseInt(string(first), 10, 64) // the kernel writes numbers
		sum += time.Duration(ran)
	}
	return sum
}

// starved tells whether a thread of these processes wants a processor: on a busy host
// one that has not run may only not have had its turn.
func starved(pids []int) bool {
	for _, pid := range pids {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended meanwhile
			}
			// The state follows the name, which may hold anything.
			if at := bytes.LastIndexByte(text, ')'); at >= 0 && bytes.HasPrefix(text[at:], []byte(") R")) {
				return true
			}
		}
	}
	return false
}

// wakingConn is a box's connection to its first program. What is sent wakes the box.
type wakingConn struct {
	net.Conn
	box *box
}

func (l wakingConn) Write(p []byte) (int, error) {
	l.box.traffic.Add(1)
	l.box.wake()
	return l.Conn.Write(p)
}

func (l wakingConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.box.traffic.Add(1)
	return n, err
}

// suspend stops the sentry, whatever it does.
func (b *box) suspend() error {
	b.sleeping.Lock()
	defer b.sleeping.Unlock()
	b.resting.Store(true)
	if err := b.sentry.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("stopping the sentry: %w", err)
	}
	return nil
}

// suspendIfIdle stops the sentry unless something was sent since traffic was seen.
func (b *box) suspendIfIdle(seen uint64) bool {
	b.sleeping.Lock()
	defer b.sleeping.Unlock()
	// Whoever sends something counts it first and looks at resting then.
	b.resting.Store(true)
	if b.traffic.Load() != seen || b.sentry.cmd.Process.Signal(unix.SIGSTOP) != nil {
		b.resting.Store(false)
		return false
	}
	return true
}

// wake has the sentry go on. It costs nothing where it is not stopped.
func (b *box) wake() {
	if !b.resting.Load() {
		return
	}
	b.sleeping.Lock()
	defer b.sleeping.Unlock()
	if !b.resting.Swap(false) {
		return
	}
	_ = b.sentry.cmd.Process.Signal(unix.SIGCONT) // one that has ended needs it no more
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

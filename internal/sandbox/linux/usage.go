//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Machine tells what an owner's box uses.
func (b *Backend) Machine(_ context.Context, owner, box string) (sandbox.MachineUsage, error) {
	b.mu.Lock()
	m := b.machines[owner+"\x00"+box]
	b.mu.Unlock()
	if m == nil || !m.running() {
		return sandbox.MachineUsage{}, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	return sandbox.MachineUsage{CPU: cpuOf(m.box.sentry.cmd.Process.Pid), Memory: m.watch.used(), Booted: m.since}, nil
}

// tick is the unit of time in /proc: the same on every Linux that Go runs on.
const tick = time.Second / 100

// cpuOf sums up the time of a part, of the processes that it has started (they are
// in its session), and of those that have ended.
func cpuOf(part int) (sum time.Duration) {
	session := strconv.Itoa(part)
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name, in parentheses, may hold anything. After it come the state, the
		// parent, the group and the session, and as the twelfth to the fifteenth the
		// time of the process and of its children, in user and in kernel mode.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 15 || string(f[3]) != session {
			continue
		}
		for _, text := range f[11:15] {
			n, _ := strconv.ParseInt(string(text), 10, 64) // the kernel writes numbers
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

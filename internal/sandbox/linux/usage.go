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

// Memory tells what the programs of an owner's box have now.
func (b *Backend) Memory(owner, box string) int64 {
	b.mu.Lock()
	m := b.machines[owner+"\x00"+box]
	b.mu.Unlock()
	if m == nil || !m.running() {
		return 0
	}
	return m.watch.used()
}

// FilesChanged tells an owner's box that files in its folders have changed from outside.
func (b *Backend) FilesChanged(owner, box string) {
	b.mu.Lock()
	m := b.machines[owner+"\x00"+box]
	b.mu.Unlock()
	if m != nil && m.running() { // one that is booting has not looked at its folders yet
		m.box.changes.tell()
	}
}

// tick is the unit of time in /proc: the same on every Linux that Go runs on.
const tick = time.Second / 100

// process is what /proc says of one.
type process struct {
	pid, parent int
	ended       bool // and has not been waited for
	cpu         time.Duration
}

// family gives a part's process and everything that descends from it. The programs
// of a box are processes of the host that the sentry has started.
func family(part int) (all []process) {
	children := map[int][]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		p, ok := parseStat(stat)
		if !ok {
			continue
		}
		children[p.parent] = append(children[p.parent], p)
		if p.pid == part {
			all = append(all, p)
		}
	}
	for n := 0; n < len(all); n++ {
		all = append(all, children[all[n].pid]...)
	}
	return all
}

// parseStat reads the number first; the name, in parentheses, may hold anything.
// After it come the state, the parent, and as the twelfth to the fifteenth the time
// of the process and of its children that have ended, in user and in kernel mode.
func parseStat(stat []byte) (p process, ok bool) {
	number, _, ok := bytes.Cut(stat, []byte(" "))
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if !ok || len(f) < 15 {
		return p, false
	}
	var err error
	if p.pid, err = strconv.Atoi(string(number)); err != nil {
		return p, false
	}
	if p.parent, err = strconv.Atoi(string(f[1])); err != nil {
		return p, false
	}
	p.ended = string(f[0]) == "Z" || string(f[0]) == "X"
	for _, text := range f[11:15] {
		n, _ := strconv.ParseInt(string(text), 10, 64) // the kernel writes numbers
		p.cpu += time.Duration(n) * tick
	}
	return p, true
}

// cpuOf sums up the time of a part's family, those that have ended included.
func cpuOf(part int) (sum time.Duration) {
	for _, p := range family(part) {
		sum += p.cpu
	}
	return sum
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"paddock/internal/sandbox"
)

// What gVisor does not bound, a watch does: the sum of the files in a folder of
// the host, and the memory of all programs together. It looks this often; between
// two looks a program can go over its limit by what it writes meanwhile.
const watchEvery = 25 * time.Millisecond

// What a box needs beside its programs' memory, in bytes: the agent, in the box,
// and the sentry and the gofer around it.
const (
	agentMemory  = 64 << 20
	sentryMemory = 128 << 20
)

// overrun is why a watch stopped a program.
type overrun struct {
	cause sandbox.Cause
	what  string
}

func (o overrun) Error() string { return o.what }

func (o overrun) error() *sandbox.ProgramError {
	e := &sandbox.ProgramError{Type: "DiskFull", Message: o.what, Hint: "remove files, or ask for a larger limit"}
	if o.cause == sandbox.OutOfMemory {
		e.Type, e.Hint = "MemoryError", "use less at once, or ask for a larger limit"
	}
	return e
}

// watch looks after one machine until it is closed.
type watch struct {
	machine *machine
	memory  *os.File // the sentry's, of which only the size is asked; nil: not known
	limit   int64    // of it, in bytes
	folders []*watched
	stop    chan struct{}
	stopped chan struct{}
	end     sync.Once

	mu     sync.Mutex // guards what follows
	runs   map[int]context.CancelCauseFunc
	last   int
	begins bool // a run has begun since the last look
}

// watched is a folder with a limit.
type watched struct {
	mount sandbox.Mount
	bytes int64 // when it was looked at last
	wrote int64 // what the box had written then
	base  int64 // what it may have: its limit, or more if it had that when a run began
}

func newWatch(m *machine, b *Backend) *watch {
	w := &watch{machine: m, limit: m.box.plan.memory + agentMemory, stop: make(chan struct{}), stopped: make(chan struct{}), runs: map[int]context.CancelCauseFunc{}}
	var err error
	if w.memory, err = m.box.memoryFile(); err != nil {
		b.config.Log.Warn("a box's memory cannot be watched", "cause", err)
	}
	for _, mount := range m.spec.Mounts {
		if !mount.ReadOnly {
			f := &watched{mount: mount, bytes: sizeOf(mount.Host)}
			f.base = max(mount.DiskBytes, f.bytes)
			w.folders = append(w.folders, f)
		}
	}
	go w.look()
	return w
}

// run makes a context that ends when the watch stops what runs. done has to be
// called when it has ended.
func (w *watch) run(ctx context.Context) (watched context.Context, done func()) {
	watched, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	n := w.last
	w.runs[n], w.begins = cancel, true
	return watched, func() {
		w.mu.Lock()
		delete(w.runs, n)
		w.mu.Unlock()
		cancel(nil)
	}
}

// cancel stops everything that runs.
func (w *watch) cancel(o overrun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.runs {
		cancel(o)
	}
}

// close ends the watch and waits for it. It works twice.
func (w *watch) close() {
	w.end.Do(func() { close(w.stop) })
	<-w.stopped
}

func (w *watch) look() {
	defer close(w.stopped)
	defer w.memory.Close() // also a nil one
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.machine.box.done:
			return
		case <-tick.C:
		}
		if w.memory != nil && w.lookAtMemory() {
			return
		}
		w.lookAtFolders()
	}
}

// lookAtMemory ends the box when its programs have more than they may: nobody
// can tell which of them has to go. The agent, which can, has a lower limit.
func (w *watch) lookAtMemory() (over bool) {
	used := w.used()
	if used <= w.limit {
		return false
	}
	w.cancel(overrun{sandbox.OutOfMemory, fmt.Sprintf("the programs took %d MiB of memory, of %d that they may have", used>>20, w.machine.box.plan.memory>>20)})
	w.machine.box.close()
	return true
}

// used is the memory of the box's programs, in bytes; 0 where it is not known.
func (w *watch) used() int64 {
	if w.memory == nil {
		return 0
	}
	return blocksOf(w.memory)
}

// lookAtFolders stops what runs when a folder has grown over its limit. It counts
// files only when the box has written enough to get there.
func (w *watch) lookAtFolders() {
	w.mu.Lock()
	begins, runs := w.begins, len(w.runs)
	w.begins = false
	w.mu.Unlock()
	if runs == 0 && !begins {
		return
	}
	wrote, err := writtenBy(w.machine.box.sentry.cmd.Process.Pid)
	for _, f := range w.folders {
		if err == nil && wrote-f.wrote <= max(f.base-f.bytes, 0) && !begins {
			continue
		}
		f.bytes, f.wrote = sizeOf(f.mount.Host), wrote
		if begins {
			f.base = max(f.mount.DiskBytes, f.bytes)
		}
		if f.bytes > f.base {
			w.cancel(overrun{sandbox.OutOfSpace, fmt.Sprintf("the files in %s have %d bytes, of %d that they may have", f.mount.Guest, f.bytes, f.mount.DiskBytes)})
		}
	}
}

// writtenBy tells how many bytes a process has written to files and sockets.
func writtenBy(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if n, ok := bytes.CutPrefix(line, []byte("wchar: ")); ok {
			return strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
		}
	}
	return 0, errors.New("the kernel does not say")
}

// sizeOf sums up the files below a folder, a file with several names once for
// each. What cannot be looked at counts nothing.
func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// blocksOf tells how much of a file is there, in bytes.
func blocksOf(f *os.File) int64 {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return 0
	}
	return stat.Blocks * 512
}

// memoryFile is the file that holds the memory of a box's programs. Nothing in it
// may be read or mapped here: it is whatever the sentry says it is.
func (b *box) memoryFile() (*os.File, error) {
	var answer control.MemoryUsageFile
	if err := b.control.Call(boot.UsageUsageFD, &control.MemoryUsageFileOpts{Version: 1}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Files) != 2 {
		for _, f := range answer.Files {
			f.Close()
		}
		return nil, fmt.Errorf("the sentry gave %d files", len(answer.Files))
	}
	answer.Files[0].Close()
	return answer.Files[1], nil
}

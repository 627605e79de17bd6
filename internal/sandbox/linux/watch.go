//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/gvisorfix"
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
	pace    pace // of looking at them
	log     *slog.Logger
	stop    context.CancelFunc
	stopped chan struct{}

	mu     sync.Mutex // guards what follows
	runs   map[int]context.CancelCauseFunc
	last   int
	begins bool              // a run has begun since the last look
	hosts  map[string]string // where folders are that were renamed, by where the guest has them
	shut   bool              // no file can be written, see shutLocked
}

// newWatch begins to look after a machine; ctx bounds what is asked of the sentry, and
// the first look at the folders.
func newWatch(ctx context.Context, m *machine, b *Backend) *watch {
	w := &watch{machine: m, limit: m.box.plan.memory + agentMemory, log: b.config.Log, stopped: make(chan struct{}), runs: map[int]context.CancelCauseFunc{}}
	var err error
	if w.memory, err = m.box.memoryFile(ctx); err != nil {
		b.config.Log.Warn("a box's memory cannot be watched", "cause", err)
	}
	w.folders = watchFolders(ctx, m)
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	go w.look(looking)
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
	w.shutLocked(false) // what there is may stay
	return watched, func() {
		w.mu.Lock()
		delete(w.runs, n)
		w.mu.Unlock()
		cancel(nil)
	}
}

// cancel stops the runs up to one: those that began later are not what was looked at.
func (w *watch) cancel(o overrun, upTo int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, cancel := range w.runs {
		if n <= upTo {
			cancel(o)
		}
	}
}

// close ends the watch and waits for it. It works twice.
func (w *watch) close() {
	w.stop()
	<-w.stopped
}

func (w *watch) look(ctx context.Context) {
	defer close(w.stopped)
	defer w.memory.Close() // also a nil one
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.machine.box.done:
			return
		case <-w.machine.client.Done():
			w.machine.box.close()
			return
		case <-tick.C:
		}
		if w.machine.box.resting.Load() {
			continue
		}
		if w.lookAtMemory() || w.lookAtFolders(ctx) {
			return
		}
	}
}

// lookAtMemory ends the box when its programs have more than they may: nobody
// can tell which of them has to go. The agent, which can, has a lower limit.
func (w *watch) lookAtMemory() (over bool) {
	used := w.used()
	kernel := residentOf(w.machine.box.sentry.cmd.Process.Pid) + residentOf(w.machine.box.gofer.cmd.Process.Pid)
	if used <= w.limit && used+kernel <= w.limit+sentryMemory {
		return false
	}
	w.cancel(overrun{sandbox.OutOfMemory, fmt.Sprintf("the programs took %d MiB of memory, and what is kept for them %d, of %d that they may have", used>>20, kernel>>20, w.machine.box.plan.memory>>20)}, math.MaxInt)
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

// blocksOf tells how much of a file is there, in bytes; 0 of one that is closed.
func blocksOf(f *os.File) int64 {
	info, err := f.Stat() // and no descriptor of it, which may be another file's meanwhile
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// answerTime is how long a sentry may take for an answer for which all starts of
// processes wait; it is a fraction of a millisecond.
const answerTime = 2 * time.Second

// memoryFile is the file that holds the memory of a box's programs. Nothing in it
// may be read or mapped here: it is whatever the sentry says it is.
func (b *box) memoryFile(ctx context.Context) (*os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = b.sentry.cmd.Process.Kill() }) // a call ends with the sentry, and with nothing else
	defer stop()
	var answer control.MemoryUsageFile
	late := time.AfterFunc(answerTime, func() { _ = b.sentry.cmd.Process.Kill() })
	defer late.Stop()
	err := gvisorfix.OwnFiles(func() error {
		return b.control.Call(boot.UsageUsageFD, &control.MemoryUsageFileOpts{Version: 1}, &answer)
	})
	if err != nil {
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

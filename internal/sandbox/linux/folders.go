//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// While nothing runs a watch looks at folders this often: only processes in the
// background can fill them then.
const idleEvery = 250 * time.Millisecond

// A watch spends at most one part in so many of its time with counting files,
// unless the box may have written as much as it has room.
const countingShare = 10

// watched is a folder with a limit.
type watched struct {
	mount sandbox.Mount
	names []string // what the gofer calls it: one for each place where it is mounted
	bytes int64    // when it was looked at last
	base  int64    // what it may have: its limit, or more if it had that when a run began or ended
}

// activity is what tells without counting files that there may be others.
type activity struct {
	cpu   time.Duration // of the sentry, without which no file changes
	wrote int64         // bytes; files grow in other ways, too
}

// pace is when folders are looked at.
type pace struct {
	seen    activity
	next    time.Time // not before, as a rule
	running bool      // at the last look
	stopped time.Time // since when what runs is being stopped; zero: it is not
}

// watchFolders counts what the machine's folders have at the beginning.
func watchFolders(ctx context.Context, m *machine) (all []*watched) {
	n := 0
	for _, mount := range m.spec.Mounts {
		f := &watched{mount: mount}
		for range 1 + len(mount.Aliases) {
			f.names = append(f.names, folderPath(n))
			n++
		}
		if !mount.ReadOnly && mount.DiskBytes < sandbox.Unbounded {
			f.bytes, _ = sizeOf(ctx, mount.Host, 0)
			f.base = max(mount.DiskBytes, f.bytes)
			all = append(all, f)
		}
	}
	return all
}

// stopTime is how long what runs may take to end when a folder is over its limit;
// whatever goes on writing then is not what was told to stop.
const stopTime = 2 * time.Second

// farBytes is how far beyond twice its limit a folder may be: a program that still
// grows it there is not asked to stop.
const farBytes = 64 << 20

// lookAtFolders stops what runs when a folder has grown over its limit. Where
// nothing runs, or does not stop, it ends the box, and tells so.
func (w *watch) lookAtFolders(ctx context.Context) (over bool) {
	w.mu.Lock()
	begins, running, last := w.begins, len(w.runs) > 0, w.last
	w.begins = false
	w.mu.Unlock()
	changed := begins || running != w.pace.running
	w.pace.running = running
	if !changed && !w.mayHaveGrown(running) {
		return false
	}
	began := time.Now()
	lost, _ := unnamed(w.machine.box.sentry.cmd.Process.Pid) // what is not known counts nothing
	var most overrun
	far := false
	for _, f := range w.folders {
		if o, ok := f.count(ctx, w.hostOf(f.mount), lost, changed); !ok {
			most, far = o, far || f.bytes > 2*f.mount.DiskBytes+farBytes
		}
	}
	every := idleEvery
	if running {
		every = 0
	}
	w.pace.next = time.Now().Add(max(every, countingShare*time.Since(began)))
	w.mu.Lock()
	w.shutLocked(most.cause != 0 && w.last == last) // a run that began since may have what there is
	w.mu.Unlock()
	if most.cause == 0 {
		w.pace.stopped = time.Time{}
		return false
	}
	if w.pace.stopped.IsZero() {
		w.pace.stopped = began
	}
	w.cancel(most, last)
	if running && !far && time.Since(w.pace.stopped) < stopTime {
		return false
	}
	w.log.Warn("a box is ended: what runs in it in the background takes too much of the disk", "cause", most)
	w.machine.box.close()
	return true
}

// shutLocked lets nothing of the box be written into files of the host, for as long as
// a folder is over its limit: a program that is told to stop takes its time, and would
// fill the disk meanwhile. Its writes fail as those into a file that is too large do.
// What the box has in its memory can be written. Where the kernel does not allow it
// (it never refused), the time that a program is given is all there is.
func (w *watch) shutLocked(yes bool) {
	sentry := w.machine.box.sentry
	if w.shut == yes || over(sentry.ended) {
		return
	}
	w.shut = yes
	var limit unix.Rlimit
	if unix.Prlimit(sentry.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &limit) != nil {
		return
	}
	if limit.Cur = limit.Max; yes {
		limit.Cur = 0
	}
	_ = unix.Prlimit(sentry.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil)
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// mayHaveGrown tells whether it is time to count.
func (w *watch) mayHaveGrown(running bool) bool {
	if len(w.folders) == 0 || !running && time.Now().Before(w.pace.next) {
		return false
	}
	now, err := activityOf(w.machine.box.sentry.cmd.Process.Pid)
	if err != nil {
		return true
	}
	room := w.folders[0].base - w.folders[0].bytes
	for _, f := range w.folders {
		room = min(room, f.base-f.bytes)
	}
	if now == w.pace.seen || now.wrote-w.pace.seen.wrote <= max(room, 0) && time.Now().Before(w.pace.next) {
		return false
	}
	w.pace.seen = now
	return true
}

// count looks at one folder, which is at host; again says that it may have what it has now. lost are
// the bytes of files without a name.
func (f *watched) count(ctx context.Context, host string, lost map[string]int64, anew bool) (o overrun, ok bool) {
	most := f.base
	if anew {
		most = 0
	}
	n, _ := sizeOf(ctx, host, most) // what is not there has nothing
	for _, name := range f.names {
		n = min(n+lost[name], mostWeight)
	}
	f.bytes = n
	if anew {
		f.base = max(f.mount.DiskBytes, n)
	}
	if n > f.base {
		return overrun{sandbox.OutOfSpace, fmt.Sprintf("the files in %s take %d bytes or more, of %d that they may", f.mount.Guest, n, f.mount.DiskBytes)}, false
	}
	return overrun{}, true
}

// activityOf tells of a process.
func activityOf(pid int) (a activity, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return a, err
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // as in cpuOf
	if len(f) < 13 {
		return a, errors.New("the kernel does not say")
	}
	for _, text := range f[11:13] {
		n, _ := strconv.ParseInt(string(text), 10, 64) // the kernel writes numbers
		a.cpu += time.Duration(n) * tick
	}
	a.wrote, err = writtenBy(pid)
	return a, err
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

// residentOf is the memory of a process that is not a file's, in bytes: a sentry's
// own, without that of its programs. What is not known is nothing.
func residentOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	f := bytes.Fields(text)
	if len(f) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(f[1]), 10, 64) // the kernel writes numbers
	shared, _ := strconv.ParseInt(string(f[2]), 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

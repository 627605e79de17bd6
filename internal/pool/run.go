package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/workspace"
)

// lockFile is what a process has locked in its folder of slots.
const lockFile = "lock"

// Run keeps slots ready until ctx ends; then it ends them, and waits. It is called
// once, before which there are none.
func (p *Pool) Run(ctx context.Context) {
	f := filler{pool: p}
	defer f.end()
	for {
		next, err := f.step(ctx)
		if err != nil {
			p.config.Log.Warn("no machines can be kept ready", "cause", fault.CauseOf(err))
			return
		}
		rest := time.NewTimer(next)
		select {
		case <-rest.C:
		case <-p.wake:
			rest.Stop()
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}

// filler does a pool's work, one slot after the other.
type filler struct {
	pool   *Pool
	dir    string // of the slots; "": none was needed yet
	unlock func()
	last   int       // the slot's number
	since  time.Time // when one was found to be missing; zero: none is
}

// step ends what is not wanted, boots what is, and gives the time until it should
// look again.
func (f *filler) step(ctx context.Context) (time.Duration, error) {
	p := f.pool
	for ctx.Err() == nil {
		surplus, missing, next := p.look(time.Now())
		for _, sl := range surplus {
			sl.Discard()
		}
		if missing == nil {
			f.since = time.Time{}
			return next, nil
		}
		now := time.Now()
		if f.since.IsZero() {
			f.since = now
		}
		if wait := p.pause(now, f.since); wait > 0 {
			return wait, nil
		}
		if f.dir == "" {
			if err := f.open(); err != nil {
				return 0, err
			}
		}
		f.last++
		f.since = time.Time{}
		p.fill(ctx, missing, filepath.Join(f.dir, strconv.Itoa(f.last)))
	}
	return 0, nil
}

// open makes and locks the folder of this process's slots, and removes those of
// processes that have ended.
func (f *filler) open() error {
	top := f.pool.config.Dir
	if err := Sweep(top); err != nil {
		f.pool.config.Log.Warn("what processes that ended kept ready cannot be removed", "cause", err)
	}
	for range 5 { // whoever sweeps may have been faster
		dir := filepath.Join(top, "p-"+strings.ToLower(rand.Text()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		unlock, err := lock.Try(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return err
		}
		if unlock != nil {
			f.dir, f.unlock = dir, unlock
			return nil
		}
	}
	return fault.New(fault.Unavailable, "a lock in the state folder cannot be taken")
}

// end ends all slots, and gives no more.
func (f *filler) end() {
	p := f.pool
	p.mu.Lock()
	p.closed = true
	var all []*Slot
	for _, k := range p.kinds {
		all, k.ready = append(all, k.ready...), nil
	}
	p.mu.Unlock()
	var ends sync.WaitGroup
	for _, sl := range all {
		ends.Go(sl.Discard)
	}
	ends.Wait()
	if f.dir == "" {
		return
	}
	if err := workspace.RemoveLocked(f.dir, lockFile, f.unlock); err != nil {
		p.config.Log.Warn("the folder of machines that were kept ready cannot be removed", "cause", err)
	}
}

// Sweep removes from a Config's Dir what processes left that have ended.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if err := sweep(filepath.Join(dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("removing %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// inTheMaking is how long a folder may have no lock yet.
const inTheMaking = 10 * time.Minute

// sweep removes the folder of one process, if that has ended.
func sweep(dir string) error {
	file := filepath.Join(dir, lockFile)
	unlock, err := lock.Try(file, os.O_RDWR)
	if err != nil {
		return err
	}
	if unlock == nil { // somebody has it, or it is not there
		info, err := os.Stat(dir)
		if _, there := os.Lstat(file); err != nil || there == nil || time.Since(info.ModTime()) < inTheMaking {
			return nil
		}
		return workspace.RemoveAll(dir)
	}
	return workspace.RemoveLocked(dir, lockFile, unlock)
}

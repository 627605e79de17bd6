package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// restTime is how long a segment is used at most: an idle process has no files that are
// not synced.
const restTime = 30 * time.Second

// restLocked has a segment retired when it was used for that long. The caller holds
// Log.writing.
func (l *Log) restLocked(s *segment) {
	if s.rest != nil {
		return
	}
	s.rest = time.AfterFunc(restTime, func() {
		l.writing.Lock()
		defer l.writing.Unlock()
		if l.current == s {
			l.retireLocked()
		}
	})
}

// retireLocked ends the use of the current segment, if there is one. Its files are made and
// synced in the background. The caller holds Log.writing.
func (l *Log) retireLocked() {
	s := l.current
	l.current = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != nil {
		l.retirees = append(l.retirees, s)
	}
	if l.retiring || len(l.retirees) == 0 {
		return
	}
	l.retiring = true
	l.background.Go(l.retireAll)
}

// retireAll retires segments in the order of their use: what a later one forgets, an earlier
// one may hold. Where one cannot be, it and those after it are tried again with the next.
func (l *Log) retireAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		l.retiring = false
		l.shrinkSoonLocked()
		l.changed.Broadcast()
	}()
	for len(l.retirees) > 0 {
		s := l.retirees[0]
		l.mu.Unlock()
		err := l.retire(s)
		l.mu.Lock()
		if err != nil {
			l.log.Error("files of the state cannot be synced; it is tried again", "segment", filepath.Base(s.path), "cause", err)
			return
		}
		l.retirees = l.retirees[1:]
		l.changed.Broadcast()
	}
}

// mostRetirees is how many segments wait to be retired: a commit that needs another one
// waits then, so that a log is never long.
const mostRetirees = 8

// awaitRetirees waits until another segment may be used. The caller holds Log.writing.
func (l *Log) awaitRetirees() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.retiring && len(l.retirees) >= mostRetirees {
		l.changed.Wait()
	}
}

// retire makes and syncs all files whose newest content is in a segment, which is not written
// any more, and makes another use of it. After an error the segment stays as it is.
func (l *Log) retire(s *segment) error {
	if s.rest != nil {
		s.rest.Stop()
		s.rest = nil
	}
	s.placing.Wait()
	of := map[string]*held{}
	l.mu.Lock()
	for name, h := range l.holders {
		if h.segment == s {
			of[name] = h
		}
	}
	l.mu.Unlock()
	names := slices.Collect(maps.Keys(of))
	err := l.persist(names)
	if err == nil {
		err = s.clear()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, h := range of {
		if l.holders[name] == h {
			l.letGoLocked(name)
		}
	}
	if s.ready && l.spare == nil && !l.sparing && !l.closed {
		l.spare = s
		return nil
	}
	l.removeSegment(s)
	return nil
}

// heldBelow gives the files that the log holds in these folders.
func (l *Log) heldBelow(prefixes []string) (names []string) {
	in := func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.holders {
		if in(name) {
			names = append(names, name)
		}
	}
	return names
}

// manyFiles is from how many files on one sync of the whole file system takes less than
// one for each.
const manyFiles = 128

// syncer is what a disk implements that syncs all that is in a folder at once.
type syncer interface {
	SyncAll(dir string) error
}

// syncFiles makes the content that some files have now outlast a power cut, and the names of
// some. What is not there is left out.
func (l *Log) syncFiles(contents, names []string) error {
	folders := map[string]bool{}
	for _, name := range names {
		for dir := name; dir != "."; {
			dir = slashDir(dir)
			folders[dir] = true
		}
	}
	if all, ok := l.disk.(syncer); ok && len(contents)+len(folders) >= manyFiles {
		return l.syncTops(all, folders)
	}
	sync := func(do func(string) error) func(string) error {
		return func(name string) error {
			if err := do(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("syncing %s: %w", name, err)
			}
			return nil
		}
	}
	if err := each(contents, sync(l.disk.SyncFile)); err != nil {
		return err
	}
	dirs := make([]string, 0, len(folders))
	for dir := range folders {
		dirs = append(dirs, dir)
	}
	return each(dirs, sync(l.disk.SyncDir))
}

// persist makes the files that are deferred, and syncs all of these. Where they cannot be
// synced it writes them anew: another sync of the same file would say nothing.
func (l *Log) persist(names []string) error {
	err := l.place(names)
	if err == nil {
		err = l.syncFiles(l.notDeferred(names), names)
	}
	if err == nil {
		return nil
	}
	folder := l.folder()
	if e := each(names, func(name string) error { return l.rewrite(name, folder) }); e != nil {
		return errors.Join(err, e)
	}
	return l.syncFiles(names, names)
}

// notDeferred returns those of some files whose contents were not synced when they were made.
func (l *Log) notDeferred(names []string) (others []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if h := l.holders[name]; h == nil || !h.deferred {
			others = append(others, name)
		}
	}
	return others
}

// rewrite writes a file anew that is in the log in folder, from the log where it is deferred,
// and else as it is. One that is not there is left out.
func (l *Log) rewrite(name, folder string) error {
	if h := l.deferred(name); h != nil {
		l.mu.Lock()
		h.placed = false
		l.mu.Unlock()
		return l.place([]string{name})
	}
	path := l.path(name)
	f, err := l.disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return l.write(path, data, folder)
}

// syncTops syncs the file systems of the topmost folders of those, which may be several.
func (l *Log) syncTops(all syncer, folders map[string]bool) error {
	for dir := range folders {
		if strings.Contains(dir, "/") {
			continue
		}
		if err := all.SyncAll(l.path(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("syncing the state: %w", err)
		}
	}
	return nil
}

// topOf is the topmost folder of a name; ".": the state folder.
func topOf(name string) string {
	top, _, below := strings.Cut(name, "/")
	if !below {
		return "."
	}
	return top
}

// slashDir is the folder of a name; ".": the state folder.
func slashDir(name string) string {
	if k := strings.LastIndexByte(name, '/'); k >= 0 {
		return name[:k]
	}
	return "."
}

// workers is how many files are synced or written at once: the disk makes one flush of
// what comes together.
const workers = 8

// each calls do for every item, some at once, and gives all errors.
func each[T any](items []T, do func(T) error) error {
	var (
		group sync.WaitGroup
		turns = make(chan struct{}, workers)
		errs  = make([]error, len(items))
	)
	for k, item := range items {
		turns <- struct{}{}
		group.Go(func() {
			errs[k] = do(item)
			<-turns
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

package commitlog

import (
	"errors"
	"io/fs"

	"paddock/internal/blob"
)

// Files gives the disk as those see it whose files are committed by the log: deferred
// files are there, and what is removed or replaced, no power cut brings back from the log.
// Other processes' deferred files are not there: [Log.Shared].
func (l *Log) Files() blob.Files { return files{l.disk, l} }

type files struct {
	blob.Files
	log *Log
}

var _ blob.Committer = files{}

func (f files) Commit(writes []blob.Write) error { return f.log.Commit(writes) }

func (f files) Expect() (never func()) { return f.log.Expect() }

// Open opens a file.
func (f files) Open(name string) (blob.File, error) {
	in, err := f.log.name(name)
	if err != nil {
		return f.Files.Open(name)
	}
	for {
		h := f.log.deferred(in)
		if h == nil { // or it has just become a file
			return f.Files.Open(name)
		}
		data, err := f.log.read(h)
		if err == nil {
			return newContent(in, data), nil
		}
		if f.log.deferred(in) == h {
			return nil, err
		}
	}
}

// Stat tells about a file or folder.
func (f files) Stat(name string) (fs.FileInfo, error) {
	if in, err := f.log.name(name); err == nil {
		if h := f.log.deferred(in); h != nil {
			return newInfo(in, h.size), nil
		}
	}
	return f.Files.Stat(name)
}

// ReadDir lists a folder.
func (f files) ReadDir(name string) ([]fs.DirEntry, error) {
	in, err := f.log.name(name)
	if err != nil {
		return f.Files.ReadDir(name)
	}
	all := listing{}
	f.log.list(in+"/", all) // first, as what becomes a file meanwhile is on the disk then
	return all.with(f.Files.ReadDir(name))
}

// list adds what the log has in a folder, whose name ends in a slash.
func (l *Log) list(dir string, all listing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmade.list(dir, func(base string, h *held, folder bool) {
		size := 0
		if !folder {
			size = h.size
		}
		all.add(base, size, folder)
	})
}

// Remove removes a file. The log forgets it with the next sync, at SyncDir at the latest.
func (f files) Remove(name string) error {
	if in, err := f.log.name(name); err == nil {
		if err := f.log.syncPut(in); err != nil {
			return err
		}
	}
	was, err := f.log.forgetSoon(name)
	if err != nil {
		return err
	}
	err = f.Files.Remove(name)
	if was && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Rename renames a file, whose content is synced where the log held it.
func (f files) Rename(from, to string) error {
	if name, err := f.log.name(from); err == nil && f.log.holds(name) {
		if err := f.log.settle([]string{name}); err != nil {
			return err
		}
	}
	if name, err := f.log.name(to); err == nil {
		if err := f.log.syncPut(name); err != nil {
			return err
		}
	}
	if err := f.Files.Rename(from, to); err != nil {
		return err
	}
	_, err := f.log.forgetSoon(to)
	return err
}

// SyncDir makes what was removed and renamed in a folder outlast a power cut.
func (f files) SyncDir(name string) error {
	if err := f.log.syncForgotten(); err != nil {
		return err
	}
	err := f.Files.SyncDir(name)
	if errors.Is(err, fs.ErrNotExist) && f.log.lists(name) {
		return nil
	}
	return err
}

// lists reports whether the log has a file in a folder.
func (l *Log) lists(path string) bool {
	name, err := l.name(path)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unmade.has(name + "/")
}

// SyncFile makes a file's content outlast a power cut.
func (f files) SyncFile(name string) error {
	if in, err := f.log.name(name); err == nil && f.log.deferred(in) != nil {
		return nil
	}
	return f.Files.SyncFile(name)
}

func (l *Log) holds(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldLocked(name)
}

// syncPut syncs the content of a file whose log is about to forget it because it is removed
// or replaced. A power cut may come when the log has forgotten it and the folder still has
// its name: then it has to be whole. A deferred file was synced before it got its name.
func (l *Log) syncPut(name string) error {
	l.mu.Lock()
	h := l.holders[name]
	l.mu.Unlock()
	if h == nil || h.deferred {
		return nil
	}
	if err := l.syncFiles([]string{name}, nil); err == nil {
		return nil
	}
	return l.persist([]string{name})
}

// forgetSoon has the log not hold a file any more, also after a power cut once
// syncForgotten was called. was reports whether it was deferred.
func (l *Log) forgetSoon(path string) (was bool, err error) {
	name, err := l.name(path)
	if err != nil {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heldLocked(name) {
		return false, nil
	}
	if l.forgetting, err = l.enqueueLocked(newPart([]entry{{kind: kindForget, name: name}}), false); err != nil {
		return false, err
	}
	h := l.holders[name]
	l.letGoLocked(name)
	return h != nil && h.deferred, nil
}

// syncForgotten waits until the log has forgotten what it was told to.
func (l *Log) syncForgotten() error {
	l.mu.Lock()
	g := l.forgetting
	l.mu.Unlock()
	if g == nil {
		return nil
	}
	err := l.flush(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgetting == g {
		l.forgetting = nil
	}
	return err
}

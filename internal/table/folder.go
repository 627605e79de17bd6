package table

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/blob"
	"paddock/internal/iolimit"
	"paddock/internal/lock"
)

const (
	// unsettled is how long after a change a file's stamp is not relied on: a second change
	// may have come within one tick of the file system's clock.
	unsettled = 2 * time.Second
	// lockTimeout is how long a lock is tried for where [FolderConfig] does not say.
	lockTimeout = 5 * time.Second
)

// FolderConfig says how a [Folder] has its files. It is copied.
type FolderConfig struct {
	// Dir is the folder.
	Dir string
	// Files is the disk; nil: the operating system's.
	Files blob.Files
	// Read reads a file, which Files are not asked for then; nil: whole, up to Most bytes.
	// Most zero: 1 MiB.
	Read func(path string) ([]byte, fs.FileInfo, error)
	Most int64
	// Write replaces a file. Nil: durably, by blob.WriteFile of Files.
	Write func(path string, data []byte) error
	// Remove removes a file; nil: Files do.
	Remove func(path string) error
	// New makes a file that must not be there, without a lock; the error is an fs.ErrExist
	// where it is. Nil: it is made under its lock, by Write.
	New func(path string, data []byte) error
	// Failed makes another error of one of the disk's; nil: it stays. It is not asked about
	// documents that are not there, or have changed.
	Failed func(error) error
	// Stamps has Get look at a file's stamp first, and not read one that is as it was.
	Stamps bool
	// Document reports whether a name is a document's, of those in the folder; nil: what
	// does not begin with a dot and is not "lock".
	Document func(name string) bool
	// Unlocked has no locks: each document is written by one process, whose revision is
	// compared without one.
	Unlocked bool
	// Lock names the lock file of a document, below Dir; nil: "lock". Timeout is how long
	// it is tried for; zero: 5 s. Brief has the file removed with the lock. Before, where
	// it is not nil, is called before the lock is taken. Locked makes another error of the
	// lock's; nil: it stays.
	Lock    func(name string) string
	Timeout time.Duration
	Brief   bool
	Before  func(name string) error
	Locked  func(error) error
}

// Folder is the [Table] of a folder, which processes of one machine share: each document is
// the file of its name. What another process changes, Get finds at once and Watch within
// two seconds.
type Folder struct {
	config FolderConfig

	mu      sync.Mutex // guards what follows
	stamps  map[string]stamp
	changed chan struct{} // closed at the next change in this process
}

// stamp is what is known of a file that was read.
type stamp struct {
	info     fs.FileInfo
	revision Revision
}

// NewFolder makes one. Nothing is read, and the folder need not be there.
func NewFolder(c FolderConfig) *Folder {
	if c.Files == nil {
		c.Files = blob.OS
	}
	c.Most, c.Timeout = cmp.Or(c.Most, 1<<20), cmp.Or(c.Timeout, lockTimeout)
	f := &Folder{config: c, stamps: map[string]stamp{}, changed: make(chan struct{})}
	if f.config.Read == nil {
		f.config.Read = f.read
	}
	if f.config.Remove == nil {
		f.config.Remove = f.config.Files.Remove
	}
	if f.config.Write == nil {
		f.config.Write = func(path string, data []byte) error { return blob.WriteFile(f.config.Files, path, data) }
	}
	return f
}

// Dir is where it is, for messages.
func (f *Folder) Dir() string { return f.config.Dir }

func (f *Folder) path(name string) string {
	return filepath.Join(f.config.Dir, filepath.FromSlash(name))
}

// Make makes a folder of the table, durably.
func (f *Folder) Make(folder string) error { return blob.MakeFolder(f.config.Files, f.path(folder)) }

// Get implements [Table].
func (f *Folder) Get(_ context.Context, name string, known Revision) (Document, error) {
	if err := Check(name); err != nil {
		return Document{}, err
	}
	if known != None && f.config.Stamps && f.stampOf(name) == known {
		return Document{Revision: known}, nil
	}
	began := time.Now()
	data, info, err := f.config.Read(f.path(name))
	if err != nil {
		f.forget(name)
		return Document{}, f.failed(err)
	}
	d := Document{Data: data, Revision: revisionOf(data)}
	if info != nil {
		d.Written = info.ModTime()
	}
	if f.config.Stamps && info != nil && began.Sub(info.ModTime()) > unsettled {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stamps[name] = stamp{info, d.Revision}
	}
	return d, nil
}

// stampOf gives the revision that a file still has by its stamp; None: it has to be read.
func (f *Folder) stampOf(name string) Revision {
	f.mu.Lock()
	was, ok := f.stamps[name]
	f.mu.Unlock()
	if !ok {
		return None
	}
	info, err := f.config.Files.Stat(f.path(name))
	if err != nil || !same(was.info, info) {
		f.forget(name)
		return None
	}
	return was.revision
}

// same reports whether a file is what it was. Files are only ever replaced.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

func (f *Folder) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.stamps, name)
}

// read is Read where the configuration has none.
func (f *Folder) read(path string) ([]byte, fs.FileInfo, error) {
	file, err := f.config.Files.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	var data []byte
	if err == nil {
		data, err = iolimit.ReadAll(file, f.config.Most, &fs.PathError{Op: "read", Path: path, Err: ErrTooLarge})
	}
	return data, info, errors.Join(err, file.Close())
}

// ErrTooLarge says that a file has more than [FolderConfig.Most] bytes, and was not read.
var ErrTooLarge = errors.New("the file is too large")

// revisionOf is the revision of a document of these bytes.
func revisionOf(data []byte) Revision {
	sum := sha256.Sum256(data)
	r := Revision(binary.BigEndian.Uint64(sum[:]))
	if r == None || r == Any {
		return 1
	}
	return r
}

// Put implements [Table].
func (f *Folder) Put(ctx context.Context, name string, data []byte, was Revision) (Revision, error) {
	if err := Check(name); err != nil {
		return None, err
	}
	var err error
	switch {
	case was == Any:
		err = f.config.Write(f.path(name), data)
	case was == None && f.config.New != nil:
		if err = f.config.New(f.path(name), data); errors.Is(err, fs.ErrExist) {
			err = ErrChanged
		}
	default:
		err = f.held(ctx, name, func() error {
			if err := f.expect(ctx, name, was); errors.Is(err, fs.ErrNotExist) {
				return ErrChanged
			} else if err != nil {
				return err
			}
			return f.config.Write(f.path(name), data)
		})
	}
	if err != nil {
		return None, f.failed(err)
	}
	f.note(name)
	return revisionOf(data), nil
}

// Delete implements [Table].
func (f *Folder) Delete(ctx context.Context, name string, was Revision) error {
	if err := Check(name); err != nil {
		return err
	}
	var err error
	if was == Any {
		err = f.config.Remove(f.path(name))
	} else {
		err = f.held(ctx, name, func() error {
			if err := f.expect(ctx, name, was); err != nil {
				return err
			}
			return f.config.Remove(f.path(name))
		})
	}
	f.note(name)
	return f.failed(err)
}

// failed is what an error of the disk becomes.
func (f *Folder) failed(err error) error {
	if err == nil || f.config.Failed == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged) {
		return err
	}
	return f.config.Failed(err)
}

// expect finds that a document has a revision. Its lock is held.
func (f *Folder) expect(ctx context.Context, name string, was Revision) error {
	if was == None {
		_, err := f.config.Files.Stat(f.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil:
			return ErrChanged
		}
		return err
	}
	d, err := f.Get(ctx, name, None)
	if err == nil && d.Revision != was {
		err = ErrChanged
	}
	return err
}

// note has those told who watch in this process.
func (f *Folder) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.stamps, name)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Folder) change() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// holding is what a context has of a lock that Alone took: the lock's file.
type holding struct{ path string }

func (f *Folder) lockOf(name string) string {
	if f.config.Lock == nil {
		return f.path("lock")
	}
	return f.path(f.config.Lock(name))
}

// held calls do under a document's lock, which the context may have already.
func (f *Folder) held(ctx context.Context, name string, do func() error) error {
	if f.config.Unlocked || ctx.Value(holding{f.lockOf(name)}) != nil {
		return do()
	}
	return f.Alone(ctx, name, func(context.Context) error { return do() })
}

// Alone implements [Holder]. A context that has an end before the timeout bounds how long
// the lock is tried for. An error of the lock is what Locked makes of it.
func (f *Folder) Alone(ctx context.Context, name string, do func(context.Context) error) error {
	if f.config.Unlocked {
		return do(ctx)
	}
	path := f.lockOf(name)
	if f.config.Before != nil {
		if err := f.config.Before(name); err != nil {
			return err
		}
	}
	unlock, err := lock.Acquire(path, f.patience(ctx))
	if err != nil {
		if f.config.Locked != nil {
			err = f.config.Locked(err)
		}
		return err
	}
	err = do(context.WithValue(ctx, holding{path}, true))
	if f.config.Brief {
		_ = os.Remove(path) // the next one makes it again
	}
	return errors.Join(err, unlock())
}

// patience is how long a lock is tried for.
func (f *Folder) patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(f.config.Timeout, time.Until(end))
	}
	return f.config.Timeout
}

// Names implements [Table].
func (f *Folder) Names(_ context.Context, folder string) ([]string, error) {
	if folder != "" {
		if err := Check(folder); err != nil {
			return nil, err
		}
	}
	all, err := f.names(folder)
	slices.Sort(all)
	return all, f.failed(err)
}

// names lists the documents below a folder.
func (f *Folder) names(folder string) (all []string, err error) {
	entries, err := f.config.Files.ReadDir(f.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case e.IsDir():
			below, err := f.names(name)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		case f.document(name):
			all = append(all, name)
		}
	}
	return all, nil
}

func (f *Folder) document(name string) bool {
	if f.config.Document != nil {
		return f.config.Document(name)
	}
	base := path.Base(name)
	return !strings.HasPrefix(base, ".") && base != "lock"
}

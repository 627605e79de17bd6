// Package atomicfile gives a file its content all at once. Whoever opens the file finds
// the old content or the new one, never a part, also after a crash. It is the only place
// that knows the order of the steps: write beside the file, sync, close, rename, sync the
// folder.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix begins the names of files that were not brought to an end, where
// [Options.Prefix] does not say otherwise.
const TempPrefix = ".new-"

// Options say how a file is written. The zero Options make a file that only its user can
// read, and do not wait for the disk: a power cut may leave the file empty or damaged.
type Options struct {
	// Mode is the file's mode, whatever the umask is; zero: 0600.
	Mode fs.FileMode
	// Durable has the write wait until the file and its name outlast a power cut.
	Durable bool
	// Prefix begins the name of the temporary file, which is in the file's folder; empty:
	// TempPrefix.
	Prefix string
}

// WriteFile makes data the content of the file at path.
func WriteFile(path string, data []byte, o Options) error {
	return write(path, data, o, (*Pending).Commit)
}

// WriteNew is WriteFile for a file that must not be there yet: where it is, the error is an
// fs.ErrExist, and the file stays as it is. Of several processes one makes the file.
func WriteNew(path string, data []byte, o Options) error {
	return write(path, data, o, (*Pending).CommitNew)
}

func write(path string, data []byte, o Options, commit func(*Pending) error) error {
	p, err := Create(path, o)
	if err != nil {
		return err
	}
	defer p.Discard()
	if _, err := p.Write(data); err != nil {
		return err
	}
	return commit(p)
}

// Alternate is WriteFile for a small file that is written again and again, and read by who
// checks what it says: it writes into the file spare, which has the content before the last
// one, and swaps the two, so that no file is made or removed. It does not wait for the disk.
// Who opened the file before the last write, and reads it during this one, may read a part
// of each. One process writes it, from one goroutine at a time.
func Alternate(path, spare string, data []byte) error {
	f, err := os.OpenFile(spare, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return exchange(spare, path)
}

// Pending is a file in the making. It is written through its methods of os.File; its
// Commit closes it. One goroutine uses it at a time.
type Pending struct {
	*os.File
	path    string
	durable bool
}

// Create makes a file that gets the name path by its Commit. The caller calls Discard in
// the end, whatever happened.
func Create(path string, o Options) (*Pending, error) {
	prefix := o.Prefix
	if prefix == "" {
		prefix = TempPrefix
	}
	f, err := os.CreateTemp(filepath.Dir(path), prefix) // 0600
	if err != nil {
		return nil, err
	}
	p := &Pending{File: f, path: path, durable: o.Durable}
	if o.Mode != 0 {
		if err := f.Chmod(o.Mode); err != nil {
			p.Discard()
			return nil, err
		}
	}
	return p, nil
}

// Commit gives the file its name, in place of what had it. After an error the old file is
// there and the new one is gone; only if syncing the folder failed the new one is there.
func (p *Pending) Commit() error { return p.commit(system{}) }

// CommitNew is Commit that replaces nothing: where there is a file of that name the error
// is an fs.ErrExist.
func (p *Pending) CommitNew() error { return p.commit(linking{}) }

func (p *Pending) commit(fsys FS) error {
	f := p.File
	p.File = nil
	if f == nil {
		return os.ErrClosed
	}
	return Finish(fsys, f, f.Name(), p.path, p.durable, func() error {
		if p.durable {
			return f.Sync()
		}
		return nil
	})
}

// Discard removes the file, unless Commit was called.
func (p *Pending) Discard() {
	if p.File == nil {
		return
	}
	_ = p.File.Close() // nothing of it is wanted
	_ = os.Remove(p.File.Name())
	p.File = nil
}

// FS is what [Finish] needs of a file system. Its errors are those of package os.
type FS interface {
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(name string) error
}

// Finish does the steps that are left for a new file which is open and called temp: it
// calls fill, which writes and syncs what it has to, closes the file, renames it to path and,
// if it is to be durable, syncs the folder. If one of the steps up to the renaming fails, the
// new file is removed and the old one stays.
func Finish(fsys FS, f interface{ Close() error }, temp, path string, durable bool, fill func() error) error {
	err := errors.Join(fill(), f.Close())
	if err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // it may have been renamed after all
		return err
	}
	if !durable {
		return nil
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// system is the operating system's file system.
type system struct{}

func (system) Rename(from, to string) error { return os.Rename(from, to) }
func (system) Remove(name string) error     { return os.Remove(name) }
func (system) SyncDir(name string) error    { return SyncDir(name) }

// linking is a file system whose Rename replaces nothing.
type linking struct{ system }

func (linking) Rename(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		_ = os.Remove(from) // the file has its name already
	}
	return err
}

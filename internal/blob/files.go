package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
)

// Files is the file system as those use it who write what must survive: [OS],
// or in tests a disk that fails and loses power (package blobtest). Its methods
// may be called from several goroutines, and their errors are those of package
// os. Only what was synced outlasts a power cut: a file's content by its Sync,
// a name by SyncDir of the folder that it is in.
type Files interface {
	// Create makes a file that must not be there, for writing.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Append opens a file for reading and for writing at its end, and makes it
	// where there is none. Each Write is one piece, also among processes.
	Append(name string) (File, error)
	// Rename replaces what is called to. After a crash there is either.
	Rename(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// Mkdir makes a folder.
	Mkdir(name string) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat tells about a file or folder.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder outlast a power cut.
	SyncDir(name string) error
	// SyncFile makes a file's content outlast a power cut, whoever has written it.
	SyncFile(name string) error
}

// File is an open file of [Files].
type File interface {
	io.ReadWriteCloser
	io.ReaderAt
	io.WriterAt // not of a file that was opened by Append
	Stat() (fs.FileInfo, error)
	// Sync makes the content outlast a power cut. After an error it is not known
	// what does, and a second Sync would not say either.
	Sync() error
	// Datasync is Sync without what reading the content does not need, such as times.
	Datasync() error
}

// OS is the operating system's file system. New files are for us alone (0600),
// and so are new folders (0700).
var OS Files = system{}

type system struct{}

func (system) Create(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))
}
func (system) Open(name string) (File, error) { return opened(os.Open(name)) }
func (system) Append(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600))
}
func (system) Rename(from, to string) error               { return os.Rename(from, to) }
func (system) Remove(name string) error                   { return os.Remove(name) }
func (system) Mkdir(name string) error                    { return os.Mkdir(name, 0o700) }
func (system) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (system) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (system) SyncDir(name string) error                  { return atomicfile.SyncDir(name) }
func (system) SyncFile(name string) error {
	f, err := os.OpenFile(name, syncMode, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// opened keeps a nil *os.File from becoming a File that is not nil.
func opened(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// osFile is an open file of the operating system.
type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }

// TempPrefix begins the names of files that [WriteFile] did not bring to an
// end. Who knows that nobody writes in their folder may remove them.
const TempPrefix = atomicfile.TempPrefix

// WriteFile makes data the content of a file, durably: once it returned nil the
// file outlasts a power cut, and whatever happens before, there is the old file
// or the new one and nothing between.
func WriteFile(files Files, name string, data []byte) error {
	return writeFile(files, Write{Name: name, Data: data}, nil)
}

// writeFile is WriteFile. What before does, is done before the file has its name, at the
// same time as its content is synced; an error of that is one of writeFile.
func writeFile(files Files, w Write, before func() error) error {
	const doing = "writing a part of the state"
	temp := w.temp()
	f, err := files.Create(temp)
	if err != nil {
		return Explain(err, doing)
	}
	return Explain(atomicfile.Finish(files, f, temp, w.Name, true, func() error {
		if _, err := f.Write(w.Data); err != nil {
			return err
		}
		if before == nil {
			return f.Sync()
		}
		return each([]func() error{f.Sync, before}, func(do func() error) error { return do() })
	}), doing)
}

// MakeFolder makes a folder, with those above it that are missing, durably.
// The topmost that is there may have been made by somebody who has not synced
// its name yet: it is synced here. That of what is above it is not.
func MakeFolder(files Files, dir string) error {
	sync, err := PlaceFolder(files, dir)
	if err != nil {
		return err
	}
	return sync()
}

// PlaceFolder makes a folder as MakeFolder does, but for the waiting: it outlasts
// a power cut once sync has returned nil.
func PlaceFolder(files Files, dir string) (sync func() error, err error) {
	names, err := placeFolder(files, dir)
	if err != nil {
		return nil, Explain(err, makingFolder)
	}
	top := names[0]
	return func() error {
		return Explain(each(names, func(name string) error {
			err := files.SyncDir(filepath.Dir(name))
			if name == top && errors.Is(err, fs.ErrPermission) {
				return nil // it is somebody else's, who made what is there for us
			}
			return err
		}), makingFolder)
	}, nil
}

const makingFolder = "making a folder for the state"

// placeFolder gives the folders whose names are to be synced: the topmost that
// was there already, and those that were made.
func placeFolder(files Files, dir string) (names []string, err error) {
	info, err := files.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, fault.New(fault.Invalid, "the state needs a folder where there is a file").WithHint("the server's log says where").
			WithCause(&fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR})
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
		if names, err = placeFolder(files, filepath.Dir(dir)); err != nil {
			return nil, err
		}
		if err := files.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	return append(names, dir), nil
}

// Explain makes a fault of what a disk said; doing names what was being done,
// as in "reading a checkpoint". A fault and the end of a context stay what they
// are, and nil stays nil.
func Explain(err error, doing string) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case full(err):
		return fault.New(fault.Exhausted, "the host's disk is full").
			WithHint("make room on the disk that holds paddock's state, or destroy sessions; what was kept before is still there").WithCause(err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fault.New(fault.Unavailable, "paddock's state folder does not allow %s", doing).WithHint("the server's log says where").WithCause(err)
	}
	return fault.New(fault.Internal, "the host's disk failed at %s", doing).WithHint("the server's log says more").WithCause(err)
}

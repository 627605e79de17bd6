package blobtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"paddock/internal/blob"
)

// Create makes a file.
func (d *Disk) Create(name string) (f blob.File, err error) {
	return d.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open opens a file.
func (d *Disk) Open(name string) (blob.File, error) { return d.open("open", name, os.O_RDONLY) }

// Append opens a file at its end.
func (d *Disk) Append(name string) (blob.File, error) {
	return d.open("append", name, os.O_RDWR|os.O_CREATE|os.O_APPEND)
}

func (d *Disk) open(kind, name string, flag int) (blob.File, error) {
	var f *file
	err := d.do(kind, name, func() error {
		real, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			return err
		}
		f = &file{disk: d, real: real, name: name, life: d.life}
		if flag != os.O_RDONLY {
			f.node = d.nodeLocked(name, false)
		}
		return nil
	})
	if err != nil {
		if f != nil {
			_ = f.real.Close() // nobody gets it
		}
		return nil, err
	}
	return f, nil
}

// Rename renames a file.
func (d *Disk) Rename(from, to string) error {
	return d.do("rename", from, func() error {
		if err := os.Rename(from, to); err != nil {
			return err
		}
		a, old := d.atLocked(from)
		b, name := d.atLocked(to)
		b.names[name] = a.names[old]
		delete(a.names, old)
		return nil
	})
}

// Remove removes a file or an empty folder.
func (d *Disk) Remove(name string) error {
	return d.do("remove", name, func() error {
		if err := os.Remove(name); err != nil {
			return err
		}
		at, base := d.atLocked(name)
		delete(at.names, base)
		return nil
	})
}

// Mkdir makes a folder.
func (d *Disk) Mkdir(name string) error {
	return d.do("mkdir", name, func() error {
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		at, base := d.atLocked(name)
		at.names[base] = newFolder()
		return nil
	})
}

// ReadDir lists a folder.
func (d *Disk) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = d.do("readdir", name, func() (err error) {
		entries, err = os.ReadDir(name)
		return err
	})
	return entries, err
}

// Stat tells about a file or folder.
func (d *Disk) Stat(name string) (info fs.FileInfo, err error) {
	err = d.do("stat", name, func() (err error) {
		info, err = os.Stat(name)
		return err
	})
	return info, err
}

// SyncDir makes the names in a folder survive.
func (d *Disk) SyncDir(name string) error {
	return d.do("syncdir", name, func() error {
		if _, err := os.Stat(name); err != nil {
			return err
		}
		n := d.nodeLocked(name, true)
		clear(n.safeNames)
		for base, child := range n.names {
			n.safeNames[base] = child
		}
		return nil
	})
}

// SyncFile makes a file's content survive.
func (d *Disk) SyncFile(name string) error {
	return d.do("sync", name, func() error {
		if _, err := os.Stat(name); err != nil {
			return err
		}
		n := d.nodeLocked(name, false)
		n.safe = slices.Clip(n.content)
		return nil
	})
}

// boots counts the losses of power below a folder, over all its Disks.
var boots sync.Map

// Boot names the time since the last loss of power.
func (d *Disk) Boot() string { return fmt.Sprint("boot ", bootsOf(d.dir).Load()) }

func bootsOf(dir string) *atomic.Int64 {
	n, _ := boots.LoadOrStore(filepath.Clean(dir), new(atomic.Int64))
	return n.(*atomic.Int64)
}

// SameBoot has a folder be a copy of another one at the same time.
func SameBoot(dir, of string) { bootsOf(dir).Store(bootsOf(of).Load()) }

// file is an open file of a Disk.
type file struct {
	disk *Disk
	real *os.File
	name string
	node *node // nil: it is only read
	life int
}

// do is one operation on the file.
func (f *file) do(kind string, act func(fault error) error) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.life != f.disk.life {
		return &fs.PathError{Op: kind, Path: f.name, Err: ErrCut}
	}
	done, fault := f.disk.beginLocked(kind, f.name)
	if done {
		if err := act(fault); err != nil {
			return err
		}
	}
	if fault != nil {
		return &fs.PathError{Op: kind, Path: f.name, Err: fault}
	}
	return nil
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.do("read", func(error) (err error) { n, err = f.real.Read(p); return err })
	return n, err
}

func (f *file) ReadAt(p []byte, at int64) (n int, err error) {
	err = f.do("read", func(error) (err error) { n, err = f.real.ReadAt(p, at); return err })
	return n, err
}

func (f *file) Write(p []byte) (n int, err error) {
	err = f.do("write", func(fault error) (err error) {
		if fault != nil {
			p = p[:len(p)/2]
		}
		n, err = f.real.Write(p)
		f.node.content = append(f.node.content, p[:n]...)
		return err
	})
	return n, err
}

func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.do("write", func(fault error) (err error) {
		if fault != nil {
			p = p[:len(p)/2]
		}
		n, err = f.real.WriteAt(p, at)
		if grown := int(at) + n - len(f.node.content); grown > 0 {
			f.node.content = append(f.node.content, make([]byte, grown)...)
		}
		f.node.content = slices.Clone(f.node.content) // what is safe shares it
		copy(f.node.content[at:], p[:n])
		return err
	})
	return n, err
}

func (f *file) Stat() (info fs.FileInfo, err error) {
	err = f.do("stat", func(error) (err error) { info, err = f.real.Stat(); return err })
	return info, err
}

func (f *file) Sync() error {
	return f.do("sync", func(fault error) error {
		if f.node != nil && fault == nil {
			f.node.safe = slices.Clip(f.node.content)
		}
		return nil
	})
}

// Datasync is Sync.
func (f *file) Datasync() error { return f.Sync() }

// Close works whatever happened, so that tests leak nothing.
func (f *file) Close() error { return f.real.Close() }

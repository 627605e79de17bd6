package wasi

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// This file is how a Dir is a tree, and what can be changed in one.

func (d *Dir) stat(name string, follow bool) (stat, errno) {
	at := d.at(name)
	defer at.close()
	return at.stat(follow)
}

func (d *Dir) list(name string, room int) ([]entry, errno) {
	at := d.at(name)
	defer at.close()
	return at.list(room)
}

// readlink refuses a link that the host has made and whose target would tell
// the guest about the host.
func (d *Dir) readlink(name string) (string, errno) {
	target, err := d.root.Readlink(name)
	switch {
	case err != nil:
		return "", errnoOf(err)
	case filepath.IsAbs(target) || path.IsAbs(target):
		return "", eperm
	}
	return filepath.ToSlash(target), success
}

// open opens regular files only: anything else in the folder may block, or be
// a device of the host.
func (d *Dir) open(name string, how opening) (body, errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at(name)
	defer at.close()
	s, e := at.stat(!how.noFollow)
	switch {
	case e == enoent && how.create:
		return d.createLocked(at, how)
	case e != success:
		return nil, e
	case how.create && how.exclusive:
		return nil, eexist
	case s.kind == typeSymlink:
		return nil, eloop
	case s.kind == typeFolder && (how.alters() || how.create):
		return nil, eisdir
	case s.kind == typeFolder:
		return nil, success
	case how.folder:
		return nil, enotdir
	case s.kind != typeRegular:
		return nil, eacces
	case d.readOnly && how.alters():
		return nil, erofs
	}
	f, e := d.openLocked(at, how.flags())
	if e != success {
		return nil, e
	}
	if how.truncate {
		if e := f.resizeLocked(0, false); e != success {
			delete(d.files, f)
			f.file.Close()
			return nil, e
		}
	}
	return f, success
}

// flags are the host's, without those that make or empty a file.
func (o opening) flags() int {
	flags := openNonblock
	switch {
	case o.write && !o.read && !o.truncate:
		flags |= os.O_WRONLY
	case o.alters():
		flags |= os.O_RDWR
	}
	if o.sync {
		flags |= os.O_SYNC
	}
	return flags
}

// createLocked makes the file that was not there. A link at the end of the
// name that leads to nothing is followed, within the folder, unless the file
// has to be new.
func (d *Dir) createLocked(at resolvedPath, how opening) (body, errno) {
	if d.readOnly {
		return nil, erofs
	}
	if how.folder {
		return nil, einval
	}
	if e := d.reserveLocked(entryBytes); e != success {
		return nil, e
	}
	flags := how.flags() | os.O_CREATE
	if how.exclusive || how.noFollow {
		flags |= os.O_EXCL
	}
	f, e := d.openLocked(at, flags)
	if e != success {
		d.releaseLocked(entryBytes)
		return nil, e
	}
	return f, success
}

func (d *Dir) openLocked(at resolvedPath, flags int) (*hostFile, errno) {
	file, err := at.open(flags)
	if err != nil {
		return nil, errnoOf(err)
	}
	f := &hostFile{dir: d, file: file, name: at.name}
	s, e := f.fstat()
	if e == success && s.kind != typeRegular {
		e = eacces // something else was put there meanwhile
	}
	if e != success {
		file.Close()
		return nil, e
	}
	f.id = fileID{s.device, s.inode}
	d.files[f] = struct{}{}
	return f, success
}

// add makes something new at name.
func (d *Dir) add(name string, create func(at resolvedPath) error) errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at(name)
	defer at.close()
	if _, e := at.stat(false); e != enoent {
		if e == success {
			e = eexist
		}
		return e
	}
	if d.readOnly {
		return erofs
	}
	if e := d.reserveLocked(entryBytes); e != success {
		return e
	}
	err := create(at)
	if err != nil {
		d.releaseLocked(entryBytes)
	}
	return errnoOf(err)
}

func (d *Dir) mkdir(name string) errno {
	return d.add(name, resolvedPath.mkdir)
}

func (d *Dir) symlink(target, name string) errno {
	return d.add(name, func(at resolvedPath) error { return at.symlink(filepath.FromSlash(target)) })
}

func (d *Dir) link(from, to string) errno {
	switch s, e := d.stat(from, false); {
	case e != success:
		return e
	case s.kind != typeRegular && s.kind != typeSymlink:
		return eperm
	}
	return d.add(to, func(at resolvedPath) error { return at.linkFrom(from) })
}

// remove removes a folder, or something else.
func (d *Dir) remove(name string, folder bool) errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at(name)
	defer at.close()
	s, e := at.stat(false)
	switch {
	case e != success:
		return e
	case folder && s.kind != typeFolder:
		return enotdir
	case !folder && s.kind == typeFolder:
		return eisdir
	case name == ".":
		return ebusy
	case d.readOnly:
		return erofs
	}
	return d.removeLocked(at, s)
}

func (d *Dir) removeLocked(at resolvedPath, s stat) errno {
	err := at.remove(s.kind == typeFolder)
	if err == nil {
		d.goneLocked(s)
	}
	return errnoOf(err)
}

// rename moves from to to, replacing what is there as POSIX has it.
func (d *Dir) rename(from, to string) errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	source := d.at(from)
	defer source.close()
	target := source.sibling(to)
	defer target.close()
	s, e := source.stat(false)
	switch {
	case e != success:
		return e
	case from == "." || to == ".":
		return ebusy
	case d.readOnly:
		return erofs
	case s.kind == typeFolder && strings.HasPrefix(to, from+"/"):
		return einval
	}
	old, e := target.stat(false)
	replaces := e == success
	switch {
	case e != success && e != enoent:
		return e
	case !replaces:
	case old.kind == typeFolder && s.kind != typeFolder:
		return eisdir
	case old.kind != typeFolder && s.kind == typeFolder:
		return enotdir
	case stableInodes && old.inode == s.inode && old.device == s.device:
		return success // two names of one file: nothing is to be done
	case old.kind == typeFolder:
		// The host's rename would do that, but not the one of os.Root.
		if e := d.removeLocked(target, old); e != success {
			return e
		}
		replaces = false
	}
	if err := source.rename(target); err != nil {
		return errnoOf(err)
	}
	if replaces {
		d.goneLocked(old)
	}
	return success
}

func (d *Dir) setTimes(name string, accessed, modified time.Time) errno {
	if d.readOnly {
		return erofs
	}
	return errnoOf(d.root.Chtimes(name, accessed, modified))
}

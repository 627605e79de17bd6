package wasi

import (
	"os"
	"path"
)

// rootPath is a name in a folder, looked up by [os.Root] each time. A spot is
// one on which the host may have a shorter way to do the same.
type rootPath struct {
	root *os.Root
	name string
}

func (r rootPath) stat(follow bool) (stat, errno) {
	look := r.root.Lstat
	if follow {
		look = r.root.Stat
	}
	info, err := look(r.name)
	if err != nil {
		return stat{}, errnoOf(err)
	}
	return statOf(r.name, info), success
}

// list gives a folder's entries; ENOMEM when they take more than room.
func (r rootPath) list(room int) ([]entry, errno) {
	switch s, e := r.stat(true); {
	case e != success:
		return nil, e
	case s.kind != typeFolder:
		return nil, enotdir
	}
	f, err := r.root.OpenFile(r.name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, errnoOf(err)
	}
	defer f.Close()
	var entries []entry
	for {
		some, err := f.ReadDir(256)
		for _, x := range some {
			info, err := x.Info()
			if err != nil {
				continue // it is gone meanwhile
			}
			s := statOf(path.Join(r.name, x.Name()), info)
			entries = append(entries, entry{x.Name(), s.kind, s.inode})
			if room -= entries[len(entries)-1].bytes(); room < 0 {
				return nil, enomem
			}
		}
		if len(some) == 0 || err != nil {
			return entries, success
		}
	}
}

func (r rootPath) open(flags int) (*os.File, error) { return r.root.OpenFile(r.name, flags, 0o666) }
func (r rootPath) mkdir() error                     { return r.root.Mkdir(r.name, 0o777) }
func (r rootPath) symlink(target string) error      { return r.root.Symlink(target, r.name) }
func (r rootPath) linkFrom(name string) error       { return r.root.Link(name, r.name) }
func (r rootPath) remove(bool) error                { return r.root.Remove(r.name) }
func (r rootPath) rename(to rootPath) error         { return r.root.Rename(r.name, to.name) }

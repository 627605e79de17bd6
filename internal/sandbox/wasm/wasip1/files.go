package wasi

import (
	"encoding/binary"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path"
	"time"
)

// The types of files in stat and readdir.
const (
	typeUnknown   = 0
	typeCharacter = 2
	typeFolder    = 3
	typeRegular   = 4
	typeSymlink   = 7
)

// stat is what a guest learns of a file.
type stat struct {
	device, number uint64
	kind           uint8
	links          uint64
	size           int64
	accessed       int64 // ns since 1970
	modified       int64
	changed        int64
}

func (c *call) putStat(address uint32, s stat) {
	b := c.bytes(address, 64)
	if b == nil {
		return
	}
	clear(b)
	le := binary.LittleEndian
	le.PutUint64(b, s.device)
	le.PutUint64(b[8:], s.number)
	b[16] = s.kind
	le.PutUint64(b[24:], s.links)
	le.PutUint64(b[32:], uint64(s.size))
	le.PutUint64(b[40:], uint64(s.accessed))
	le.PutUint64(b[48:], uint64(s.modified))
	le.PutUint64(b[56:], uint64(s.changed))
}

func typeOf(mode fs.FileMode) uint8 {
	switch {
	case mode.IsDir():
		return typeFolder
	case mode.IsRegular():
		return typeRegular
	case mode&fs.ModeSymlink != 0:
		return typeSymlink
	case mode&fs.ModeCharDevice != 0:
		return typeCharacter
	}
	return typeUnknown
}

// hostStat translates what the host says of a file called name.
func hostStat(name string, info fs.FileInfo) stat {
	t := info.ModTime().UnixNano()
	s := stat{device: 2, number: number(name), kind: typeOf(info.Mode()), links: 1, size: info.Size(), accessed: t, modified: t, changed: t}
	systemStat(&s, info)
	return s
}

// number makes up an inode number for what has none.
func number(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64() | 1<<63
}

func archiveStat(n *node) stat {
	s := stat{device: 1, number: n.number, kind: typeRegular, links: 1, size: n.size}
	if n.folder {
		s.kind = typeFolder
	}
	return s
}

func virtualStat(abs string) stat {
	return stat{device: 3, number: number(abs), kind: typeFolder, links: 1}
}

// statAt looks at a place, following a link at its end if follow.
func (s *System) statAt(p place, follow bool) (stat, errno) {
	switch {
	case p.virtual:
		return virtualStat(p.abs), success
	case p.mount == nil:
		return stat{}, enoent
	case p.mount.Archive != nil:
		n, e := p.mount.Archive.find(p.rel)
		if e != success {
			return stat{}, e
		}
		return archiveStat(n), success
	}
	look := p.mount.Dir.root.Lstat
	if follow {
		look = p.mount.Dir.root.Stat
	}
	info, err := look(p.rel)
	if err != nil {
		return stat{}, errnoOf(err)
	}
	return hostStat(p.rel, info), success
}

// find tells apart a name that is not there from one below a file.
func (a *Archive) find(name string) (*node, errno) {
	if n := a.nodes[name]; n != nil {
		return n, success
	}
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if n := a.nodes[up]; n != nil && !n.folder {
			return nil, enotdir
		}
	}
	return nil, enoent
}

// opening is how something is opened.
type opening struct {
	read, write, append      bool
	create, exclusive, trunc bool
	folder                   bool // it must be one
	noFollow                 bool
}

// open makes a descriptor for what is at p.
func (s *System) open(p place, how opening) (*descriptor, errno) {
	d := &descriptor{path: p.abs, read: how.read, write: how.write, append: how.append}
	switch {
	case p.virtual:
		return d.openFolder(how)
	case p.mount == nil:
		if how.create {
			return nil, eperm
		}
		return nil, enoent
	case p.mount.Archive != nil:
		return d.openArchive(p, how)
	}
	return d.openDir(p, how)
}

func (d *descriptor) openFolder(how opening) (*descriptor, errno) {
	if how.write || how.trunc {
		return nil, eisdir
	}
	if how.exclusive {
		return nil, eexist
	}
	d.kind = folder
	return d, success
}

func (d *descriptor) openArchive(p place, how opening) (*descriptor, errno) {
	n, e := p.mount.Archive.find(p.rel)
	switch {
	case e == enoent && how.create, e == success && !n.folder && (how.write || how.trunc):
		return nil, erofs
	case e != success:
		return nil, e
	case n.folder:
		return d.openFolder(how)
	case how.folder:
		return nil, enotdir
	}
	body, err := p.mount.Archive.content(n)
	if err != nil {
		return nil, eio
	}
	d.kind, d.content, d.number = blob, body, n.number
	return d, success
}

func (d *descriptor) openDir(p place, how opening) (*descriptor, errno) {
	dir := p.mount.Dir
	changes := how.write || how.create || how.trunc
	if how.noFollow {
		if info, err := dir.root.Lstat(p.rel); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, eloop
		}
	}
	info, err := dir.root.Stat(p.rel)
	if err == nil && info.IsDir() {
		return d.openFolder(how)
	}
	if how.folder {
		if err != nil {
			return nil, errnoOf(err)
		}
		return nil, enotdir
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, eacces
	}
	if changes && dir.readOnly {
		if err != nil && !how.create {
			return nil, errnoOf(err)
		}
		return nil, erofs
	}
	f, err := dir.openFile(p.rel, how, err == nil)
	if err != nil {
		return nil, errnoOf(err)
	}
	d.kind, d.file, d.dir = file, f, dir
	return d, success
}

// openFile opens a regular file, making it if how says so.
func (d *Dir) openFile(name string, how opening, there bool) (*os.File, error) {
	flag := os.O_RDONLY
	switch {
	case (how.write || how.trunc) && how.read:
		flag = os.O_RDWR
	case how.write || how.trunc:
		flag = os.O_WRONLY
	}
	if how.exclusive {
		flag |= os.O_EXCL
	}
	var f *os.File
	open := func() (err error) {
		f, _, err = d.lookup(name, flag)
		return err
	}
	var err error
	if how.create && !there || how.create && how.exclusive {
		flag |= os.O_CREATE
		err = d.make(open)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	if how.trunc {
		if err := d.resize(f, 0); err != nil {
			f.Close()
			return nil, err
		}
	}
	d.track(f)
	return f, nil
}

// entry is one name in a folder.
type entry struct {
	name   string
	kind   uint8
	number uint64
}

// list reads the folder at p.
func (s *System) list(p place) ([]entry, errno) {
	entries := []entry{{".", typeFolder, number(p.abs)}, {"..", typeFolder, number(path.Dir(p.abs))}}
	switch {
	case p.virtual:
		for _, name := range p.children {
			entries = append(entries, entry{name, typeFolder, number(path.Join(p.abs, name))})
		}
		return entries, success
	case p.mount == nil:
		return nil, enoent
	case p.mount.Archive != nil:
		n, e := p.mount.Archive.find(p.rel)
		if e != success || !n.folder {
			return nil, enotdir
		}
		for _, name := range n.children {
			child := archiveStat(p.mount.Archive.nodes[path.Join(p.rel, name)])
			entries = append(entries, entry{name, child.kind, child.number})
		}
		return entries, success
	}
	found, err := fs.ReadDir(p.mount.Dir.root.FS(), p.rel)
	if err != nil {
		return nil, errnoOf(err)
	}
	for _, e := range found {
		entries = append(entries, entry{e.Name(), typeOf(e.Type()), number(path.Join(p.abs, e.Name()))})
	}
	return entries, success
}

// moments translates the times that a guest sets; a nil stays as it is.
func moments(accessed, modified uint64, flags uint32) (a, m *time.Time, e errno) {
	if flags&3 == 3 || flags&12 == 12 || flags > 15 || accessed > math.MaxInt64 || modified > math.MaxInt64 {
		return nil, nil, einval
	}
	now := time.Now()
	set := func(given uint64, flags uint32) *time.Time {
		t := time.Unix(0, int64(given))
		switch flags & 3 {
		case 1:
			return &t
		case 2:
			return &now
		}
		return nil
	}
	return set(accessed, flags), set(modified, flags>>2), success
}

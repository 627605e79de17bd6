package wasi

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Mount shows a tree to the guest; exactly one of Dir and Archive is set.
type Mount struct {
	Guest   string   // absolute guest path, not "/", not inside another mount
	Aliases []string // further paths of the same tree
	Dir     *Dir
	Archive *Archive
}

// tree is what can be mounted, and the space around it. The names are
// relative to the tree's top, which is ".".
type tree interface {
	// stat follows a link at the end of the name if follow is set.
	stat(name string, follow bool) (stat, errno)
	// list gives a folder's entries; ENOMEM when they take more than room.
	list(name string, room int) ([]entry, errno)
	// open gives the body of a file; nil for a folder.
	open(name string, how opening) (body, errno)
	// readlink gives a link's target as the guest may read it.
	readlink(name string) (string, errno)
}

var (
	_ tree = (*Dir)(nil)
	_ tree = (*Archive)(nil)
	_ tree = (*space)(nil)
)

// opening is how something is opened.
type opening struct {
	read, write                 bool
	create, exclusive, truncate bool
	folder                      bool // it must be one
	noFollow                    bool // a link at the end is not followed
	sync                        bool // writes reach the disk before they return
}

// alters tells whether the opening may change what is there.
func (o opening) alters() bool { return o.write || o.truncate }

// space is the guest's name space: the mounts, and as a tree of its own the
// folders above them. The names in that tree are whole guest paths.
type space struct {
	points  []point             // the longest path first
	folders map[string][]string // names in each folder above a mount, sorted
}

// point is a path at which a tree is mounted.
type point struct {
	at     string
	tree   tree
	dir    *Dir // the tree, if it is one
	device uint64
}

const spaceDevice = 1 // of what is not mounted; mounts count on from there

func newSpace(mounts []Mount, ds *devices) (*space, error) {
	s := &space{folders: map[string][]string{"/": nil}}
	var errs []error
	for i, m := range mounts {
		p := point{dir: m.Dir, device: spaceDevice + 1 + uint64(i)}
		switch {
		case (m.Dir == nil) == (m.Archive == nil):
			errs = append(errs, fmt.Errorf("the mount %s has to have a folder or an archive", m.Guest))
			continue
		case m.Dir != nil:
			p.tree = m.Dir
		default:
			p.tree = m.Archive
		}
		for _, p.at = range append([]string{m.Guest}, m.Aliases...) {
			errs = append(errs, s.mount(p))
		}
	}
	if !slices.ContainsFunc(s.points, func(p point) bool { return p.at == devicesAt || strings.HasPrefix(p.at, devicesAt+"/") }) {
		errs = append(errs, s.mount(point{at: devicesAt, tree: ds, device: spaceDevice}))
	}
	for _, p := range s.points {
		if _, above := s.folders[p.at]; above {
			errs = append(errs, fmt.Errorf("another mount lies inside of %s", p.at))
		}
	}
	slices.SortStableFunc(s.points, func(a, b point) int { return len(b.at) - len(a.at) })
	return s, errors.Join(errs...)
}

func (s *space) mount(p point) error {
	if !path.IsAbs(p.at) || path.Clean(p.at) != p.at || p.at == "/" || strings.Count(p.at, "/") > maxDepth/2 || len(p.at) > maxPath/2 {
		return fmt.Errorf("nothing can be mounted at %q", p.at)
	}
	for _, q := range s.points {
		if q.at == p.at {
			return fmt.Errorf("two mounts are at %s", p.at)
		}
	}
	s.points = append(s.points, p)
	for child := p.at; child != "/"; child = path.Dir(child) {
		parent, name := path.Dir(child), path.Base(child)
		if i, there := slices.BinarySearch(s.folders[parent], name); !there {
			s.folders[parent] = slices.Insert(s.folders[parent], i, name)
		}
	}
	return nil
}

// place is where a guest path leads.
type place struct {
	point
	name   string // in the tree
	abs    string // the guest path, clean
	folder bool   // the path ended in a way that only fits a folder
}

// find resolves a clean guest path.
func (s *space) find(abs string) place {
	for _, p := range s.points {
		rest, ok := strings.CutPrefix(abs, p.at)
		switch {
		case !ok:
		case rest == "":
			return place{point: p, name: ".", abs: abs}
		case rest[0] == '/':
			return place{point: p, name: rest[1:], abs: abs}
		}
	}
	return place{point: point{tree: s, device: spaceDevice}, name: abs, abs: abs}
}

// at resolves the path at address that a guest gave relative to the folder fd.
func (c *call) at(fd, address, length uint32) (place, errno) {
	d, e := c.get(fd)
	switch {
	case e != success:
		return place{}, e
	case !d.isFolder():
		return place{}, enotdir
	}
	given, e := c.text(address, length)
	if e != success {
		return place{}, e
	}
	clean, folder, e := join(c.path[:0], d.path, given)
	c.path = clean
	if e != success {
		return place{}, e
	}
	p := c.space.find(string(clean))
	p.folder = folder
	return p, success
}

// join appends to buffer the clean absolute path that given means in the
// folder base. ".." in the root leads to the root.
func join(buffer []byte, base string, given []byte) (clean []byte, folder bool, e errno) {
	clean = buffer
	if given[0] != '/' && base != "/" {
		clean = append(clean, base...)
	}
	for len(given) > 0 {
		part := given
		if i := bytes.IndexByte(given, '/'); i >= 0 {
			part, given = given[:i], given[i+1:]
			folder = len(given) == 0
		} else {
			given = nil
		}
		switch {
		case len(part) == 0:
		case string(part) == ".":
			folder = len(given) == 0
		case string(part) == "..":
			clean = clean[:max(bytes.LastIndexByte(clean, '/'), 0)]
			folder = len(given) == 0
		case len(part) > maxName:
			return clean, false, enametoolong
		case !validName(part):
			return clean, false, einval
		default:
			clean = append(append(clean, '/'), part...)
		}
	}
	switch {
	case len(clean) == 0:
		clean = append(clean, '/')
	case len(clean) > maxPath || bytes.Count(clean, []byte("/")) > maxDepth:
		return clean, false, enametoolong
	}
	return clean, folder, success
}

// statAt looks at a place.
func (s *System) statAt(p place, follow bool) (stat, errno) {
	found, e := p.tree.stat(p.name, follow || p.folder)
	if e == success && p.folder && found.kind != typeFolder {
		e = enotdir
	}
	found.device = p.device
	return found, e
}

// The space's own folders are there for good and cannot be changed.

func (s *space) stat(name string, _ bool) (stat, errno) {
	if _, ok := s.folders[name]; !ok {
		return stat{}, enoent
	}
	return stat{inode: inodeOf(name), kind: typeFolder, links: 1}, success
}

func (s *space) list(name string, _ int) ([]entry, errno) {
	var entries []entry
	for _, child := range s.folders[name] {
		p := s.find(path.Join(name, child))
		if found, e := p.tree.stat(p.name, true); e == success {
			entries = append(entries, entry{child, found.kind, found.inode})
		}
	}
	return entries, success
}

func (s *space) open(name string, how opening) (body, errno) {
	_, there := s.folders[name]
	switch {
	case !there && how.create:
		return nil, erofs
	case !there:
		return nil, enoent
	case how.create && how.exclusive:
		return nil, eexist
	case how.alters() || how.create:
		return nil, eisdir
	}
	return nil, success
}

func (s *space) readlink(name string) (string, errno) {
	if _, e := s.stat(name, false); e != success {
		return "", e
	}
	return "", einval
}

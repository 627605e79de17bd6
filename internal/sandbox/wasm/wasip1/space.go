package wasi

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Mount shows a tree to the guest: exactly one of Dir and Archive is set.
type Mount struct {
	Guest   string   // absolute guest path
	Aliases []string // further paths of the same tree
	Dir     *Dir
	Archive *Archive
}

// Close frees what the mount holds open. It works twice.
func (m Mount) Close() error {
	if m.Dir != nil {
		return m.Dir.Close()
	}
	return nil
}

// space is the guest's name space: mounts, and above them folders that exist
// only to hold them.
type space struct {
	mounts  map[string]*Mount
	virtual map[string][]string // a folder's children, sorted
}

func newSpace(mounts []Mount) (*space, error) {
	s := &space{mounts: map[string]*Mount{}, virtual: map[string][]string{"/": nil}}
	for i := range mounts {
		m := &mounts[i]
		if (m.Dir == nil) == (m.Archive == nil) {
			return nil, errors.New("a mount has to have a folder or an archive")
		}
		for _, at := range append([]string{m.Guest}, m.Aliases...) {
			if err := s.mount(at, m); err != nil {
				return nil, err
			}
		}
	}
	for at := range s.virtual {
		if s.mounts[at] != nil {
			return nil, fmt.Errorf("the mount %s has another one inside", at)
		}
	}
	return s, nil
}

func (s *space) mount(at string, m *Mount) error {
	if !path.IsAbs(at) || path.Clean(at) != at || at == "/" {
		return fmt.Errorf("%q is no place for a mount", at)
	}
	if s.mounts[at] != nil {
		return fmt.Errorf("two mounts are at %s", at)
	}
	s.mounts[at] = m
	for child := at; child != "/"; child = path.Dir(child) {
		parent, name := path.Dir(child), path.Base(child)
		if !slices.Contains(s.virtual[parent], name) {
			s.virtual[parent] = append(s.virtual[parent], name)
			slices.Sort(s.virtual[parent])
		}
	}
	return nil
}

// place is where a guest path leads: into a mount, or to a virtual folder, or
// (with both nil) nowhere.
type place struct {
	mount    *Mount
	rel      string // within the mount; "." is its root
	abs      string // the guest path, clean
	children []string
	virtual  bool
}

// find resolves a clean absolute guest path.
func (s *space) find(abs string) place {
	for at, rest := abs, ""; at != "/"; {
		if m := s.mounts[at]; m != nil {
			if rest == "" {
				rest = "."
			}
			return place{mount: m, rel: rest, abs: abs}
		}
		rest = strings.TrimSuffix(path.Base(at)+"/"+rest, "/")
		at = path.Dir(at)
	}
	children, ok := s.virtual[abs]
	return place{abs: abs, children: children, virtual: ok}
}

// at resolves a path that the guest gave relative to the descriptor fd.
func (c *call) at(fd, address, length uint32) (place, errno) {
	d, e := c.get(fd)
	if e != success {
		return place{}, e
	}
	if !d.isFolder() {
		return place{}, enotdir
	}
	name, e := c.name(address, length)
	if e != success {
		return place{}, e
	}
	if name == "" {
		return place{}, enoent
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 {
			return place{}, enametoolong
		}
	}
	if !path.IsAbs(name) {
		name = d.path + "/" + name
	}
	return c.space.find(path.Clean("/" + name)), success
}

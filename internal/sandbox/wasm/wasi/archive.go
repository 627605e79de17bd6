package wasi

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
)

// Archive is a tree that is only read and never changes, such as a language's
// library. It is safe for concurrent use. Names and sizes are read once, when
// something is looked for; a file's content when it is opened first, and then
// kept.
type Archive struct {
	nodes func() (map[string]*node, error)
}

// node is a folder or a file of an Archive, and the body of an open file.
type node struct {
	stat
	fsys    fs.FS
	name    string
	entries []entry // of a folder, sorted

	once    sync.Once
	content []byte
	e       errno
}

// NewArchive makes a tree of what open gives, such as a zip archive. It has no
// links. Should it not be readable, nothing in it is.
func NewArchive(open func() (fs.FS, error)) *Archive {
	return &Archive{sync.OnceValues(func() (map[string]*node, error) {
		fsys, err := open()
		if err != nil {
			return nil, err
		}
		return readNames(fsys)
	})}
}

func readNames(fsys fs.FS) (map[string]*node, error) {
	nodes := map[string]*node{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n := &node{stat: plainStat(name, info), fsys: fsys, name: name}
		n.inode = uint64(len(nodes)) + 1
		nodes[name] = n
		if parent := nodes[path.Dir(name)]; name != "." {
			parent.entries = append(parent.entries, entry{d.Name(), n.kind, n.inode})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the names in an archive: %w", err)
	}
	for _, n := range nodes {
		n.accessed, n.modified, n.changed = max(n.accessed, 0), max(n.modified, 0), max(n.changed, 0)
		slices.SortFunc(n.entries, byName)
	}
	return nodes, nil
}

// find tells a name that is not there from one below a file.
func (a *Archive) find(name string) (*node, errno) {
	nodes, err := a.nodes()
	if err != nil {
		return nil, eio
	}
	if n := nodes[name]; n != nil {
		return n, success
	}
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if n := nodes[up]; n != nil && n.kind != typeFolder {
			return nil, enotdir
		}
	}
	return nil, enoent
}

func (a *Archive) stat(name string, _ bool) (stat, errno) {
	n, e := a.find(name)
	if e != success {
		return stat{}, e
	}
	return n.stat, success
}

func (a *Archive) list(name string, _ int) ([]entry, errno) {
	n, e := a.find(name)
	switch {
	case e != success:
		return nil, e
	case n.kind != typeFolder:
		return nil, enotdir
	}
	return n.entries, success
}

func (a *Archive) open(name string, how opening) (body, errno) {
	n, e := a.find(name)
	switch {
	case e == enoent && how.create:
		return nil, erofs
	case e != success:
		return nil, e
	case how.create && how.exclusive:
		return nil, eexist
	case n.kind == typeFolder && (how.alters() || how.create):
		return nil, eisdir
	case n.kind == typeFolder:
		return nil, success
	case how.folder:
		return nil, enotdir
	case how.alters():
		return nil, erofs
	case n.kind != typeRegular:
		return nil, eacces
	}
	if e := n.load(); e != success {
		return nil, e
	}
	return n, success
}

func (a *Archive) readlink(name string) (string, errno) {
	if _, e := a.find(name); e != success {
		return "", e
	}
	return "", einval
}

func (n *node) load() errno {
	n.once.Do(func() {
		b, err := fs.ReadFile(n.fsys, n.name)
		if err != nil || int64(len(b)) != n.size {
			n.e = eio
			return
		}
		n.content = b
	})
	return n.e
}

func (n *node) readAt(p []byte, offset int64) (int, errno) {
	if offset >= n.size {
		return 0, success
	}
	return copy(p, n.content[offset:]), success
}

func (n *node) fstat() (stat, errno) { return n.stat, success }

func (n *node) close() error { return nil }

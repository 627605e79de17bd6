package wasi

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
)

// Archive is a tree that is read-only and never changes, such as a language's
// library. It is safe for concurrent use; bodies are read once and kept.
type Archive struct {
	fsys  fs.FS
	nodes map[string]*node
}

type node struct {
	name     string
	size     int64
	folder   bool
	number   uint64
	children []string // sorted

	once sync.Once
	body []byte
	err  error
}

// NewArchive reads fsys's names and sizes.
func NewArchive(fsys fs.FS) (*Archive, error) {
	a := &Archive{fsys: fsys, nodes: map[string]*node{}}
	err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n := &node{name: name, folder: e.IsDir(), number: uint64(len(a.nodes)) + 1}
		if !n.folder {
			info, err := e.Info()
			if err != nil {
				return err
			}
			n.size = info.Size()
		}
		a.nodes[name] = n
		if parent := a.nodes[path.Dir(name)]; name != "." && parent != nil {
			parent.children = append(parent.children, path.Base(name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading an archive's names: %w", err)
	}
	for _, n := range a.nodes {
		slices.Sort(n.children)
	}
	return a, nil
}

// content is the file's body.
func (a *Archive) content(n *node) ([]byte, error) {
	n.once.Do(func() { n.body, n.err = fs.ReadFile(a.fsys, n.name) })
	return n.body, n.err
}

package commitlog

import (
	"path"
	"strings"
)

// tree holds values by the names of files, and lists the folders that these are in. A
// folder's name ends in a slash, and that of the top is empty.
type tree[T any] struct {
	folders map[string]map[string]T // by folder and base name; a base that ends in a slash is a folder
}

func (t *tree[T]) put(name string, value T) {
	for {
		dir, base := split(name)
		if t.folders == nil {
			t.folders = map[string]map[string]T{}
		}
		in := t.folders[dir]
		if in == nil {
			in = map[string]T{}
			t.folders[dir] = in
		}
		in[base] = value
		if dir == "" || len(in) > 1 {
			return
		}
		var none T
		name, value = dir, none
	}
}

func (t *tree[T]) remove(name string) {
	for {
		dir, base := split(name)
		in := t.folders[dir]
		delete(in, base)
		if in == nil || len(in) > 0 {
			return
		}
		if delete(t.folders, dir); dir == "" {
			return
		}
		name = dir
	}
}

func (t *tree[T]) get(name string) (value T, there bool) {
	dir, base := split(name)
	value, there = t.folders[dir][base]
	return value, there
}

// has reports whether there is something in a folder.
func (t *tree[T]) has(dir string) bool { return t.folders[dir] != nil }

// list calls visit with what is in a folder.
func (t *tree[T]) list(dir string, visit func(base string, value T, folder bool)) {
	for base, value := range t.folders[dir] {
		base, folder := strings.CutSuffix(base, "/")
		visit(base, value, folder)
	}
}

// split is path.Split for the names of files and of folders.
func split(name string) (dir, base string) {
	whole, folder := strings.CutSuffix(name, "/")
	dir, base = path.Split(whole)
	if folder {
		base += "/"
	}
	return dir, base
}

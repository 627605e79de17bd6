// Package skills holds the skills that come with paddock: a folder for each, as
// the Agent Skills format has them, whose lib is importable Python: of 3.9 or later,
// with nothing but the standard library and what `make skills` packs into dist of
// other people's (build/sources.txt), together with its licences.
package skills

import (
	"embed"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed all:data all:documents all:files
var written embed.FS

//go:embed all:dist
var packed embed.FS

// needs is what of dist a skill does not work without.
var needs = map[string]string{"documents": "documents/lib/packages.zip"}

// Names lists all skills, in order.
func Names() []string { return []string{"data", "documents", "files"} }

// Available lists those that are whole in this binary: without `make skills` the
// ones that need other people's packages are not.
func Available() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		file, needed := needs[name]
		if !needed {
			return false
		}
		_, err := fs.Stat(packed, "dist/"+file)
		return err != nil
	})
}

// Digest gives what `make skills` wrote down as a skill's digest, as package skill has
// it; empty: that was not done, and whoever wants it computes it. It is safe for
// concurrent use.
func Digest(name string) string {
	text, err := fs.ReadFile(packed, "dist/digests")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if digest, of, ok := strings.Cut(strings.TrimSpace(line), " "); ok && of == name {
			return digest
		}
	}
	return ""
}

// Open gives a skill's folder, with SKILL.md at its root. It has no other files
// than regular ones, and is safe for concurrent use.
func Open(name string) (fs.FS, error) {
	if !slices.Contains(Names(), name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	ours, err := fs.Sub(written, name)
	if err != nil {
		return nil, err
	}
	theirs, err := fs.Sub(packed, "dist/"+name)
	if err != nil {
		return nil, err
	}
	return both{ours, theirs}, nil
}

// both are two folders that are seen as one. No file is in both.
type both struct{ ours, theirs fs.FS }

var _ fs.ReadDirFS = both{}

// Open implements fs.FS.
func (b both) Open(name string) (fs.File, error) {
	f, err := b.ours.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	return b.theirs.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (b both) ReadDir(name string) ([]fs.DirEntry, error) {
	ours, err := fs.ReadDir(b.ours, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	theirs, missing := fs.ReadDir(b.theirs, name)
	if err != nil && missing != nil {
		return nil, missing
	}
	all := slices.Clone(ours)
	for _, e := range theirs {
		if !slices.ContainsFunc(ours, func(o fs.DirEntry) bool { return o.Name() == e.Name() }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// Walk gives every file of a skill with its content, in the order of the paths.
func Walk(name string, each func(file string, data []byte) error) error {
	folder, err := Open(name)
	if err != nil {
		return err
	}
	return fs.WalkDir(folder, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, path.Clean(file))
		if err != nil {
			return err
		}
		return each(file, data)
	})
}

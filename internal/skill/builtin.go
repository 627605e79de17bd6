package skill

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Builtin is the kind of skills that come with paddock.
const Builtin Kind = "builtin"

// ReadBuiltin reads the folder of a skill that comes with paddock. A file whose name
// ends in .sh, and a Python script that begins with #!, are executable. digest is what
// was written down of it when paddock was built, which is believed until the skill is
// first shown; empty: it is computed.
func ReadBuiltin(name string, from fs.FS, digest string) (*Installed, error) {
	var files []File
	err := fs.WalkDir(from, ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, at)
		if err != nil {
			return err
		}
		executable := path.Ext(at) == ".sh" || path.Ext(at) == ".py" && strings.HasPrefix(string(data[:min(2, len(data))]), "#!")
		files = append(files, File{Path: at, Executable: executable, Data: data})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading paddock's own skill %s: %w", name, err)
	}
	folder, err := newFolder(files)
	if err != nil {
		return nil, err
	}
	checked, err := readSkill(folder, name, true)
	if err != nil {
		return nil, err
	}
	if digest == "" {
		digest = checked.Folder.Digest()
	}
	return &Installed{*recordOf(checked, digest, Provenance{Kind: Builtin, Text: "paddock", Origin: string(Builtin)}), checked}, nil
}

// builtins are the skills that every owner has. They are read once.
func (s *Store) builtins() []*Installed {
	if s.config.Builtin == nil {
		return nil
	}
	return s.config.Builtin()
}

// builtinDigests are their digests. Where they were written down nothing is read.
func (s *Store) builtinDigests() (all []string) {
	if s.config.BuiltinDigests != nil {
		return s.config.BuiltinDigests
	}
	for _, in := range s.builtins() {
		all = append(all, in.Digest)
	}
	return all
}

// builtin gives the one of a name; nil: there is none.
func (s *Store) builtin(name string) *Installed {
	all := s.builtins()
	k := slices.IndexFunc(all, func(in *Installed) bool { return in.Name == name })
	if k < 0 {
		return nil
	}
	return all[k]
}

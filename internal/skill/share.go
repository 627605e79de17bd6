package skill

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/linkfarm"
)

// A folder that several sessions are shown at once changes while their programs read.
// So each part of a skill gets its name when all of it is there, and what is in its
// place goes away as a whole. And it outlasts sessions, processes and power cuts: what
// somebody left in it who was cut short is found by its names.

// Share is [Store.Provide] for a folder that any number of an owner's sessions are
// shown: any number of goroutines and processes may share it, with whatever versions of
// paddock; the last to come has it as its own version has skills. It must be there, on
// the disk of the store, and be nobody else's. Where nothing has changed it reads two
// small files and two folders. A skill of which a part is missing is shown again, and
// what belongs to none is removed. A program finds each module and each folder of a
// skill as it was, as it is, or, for an instant, not at all.
func (s *Store) Share(ctx context.Context, owner, dir string) error {
	return s.refresh(ctx, owner, view{dir: dir, shared: true})
}

// whole reports whether a view has what was noted, by the names of it, and nothing else.
// What one session alone sees is not looked at.
func (v view) whole(m stamp) bool {
	if !v.shared {
		return true
	}
	lacking, strange, err := v.compare(m)
	return err == nil && len(lacking) == 0 && len(strange) == 0
}

// compare finds the skills of a stamp of which a part is missing in a view, and the names
// there that belong to none. The index counts as a skill without a name.
func (v view) compare(m stamp) (lacking map[string]bool, strange []string, err error) {
	there := map[string]bool{}
	for _, sub := range []string{"", library} {
		entries, err := os.ReadDir(v.at(sub))
		if err != nil && (sub == "" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, nil, err
		}
		for _, e := range entries {
			there[path.Join(sub, e.Name())] = true
		}
	}
	wanted := map[string]bool{indexFile: true, linkfarm.Stamp: true, library: true}
	lacking = map[string]bool{}
	if !there[indexFile] {
		lacking[""] = true
	}
	for name := range m.Shown {
		for _, part := range parts(name) {
			wanted[part] = true
			if !there[part] {
				lacking[name] = true
			}
		}
	}
	for name := range there {
		if !wanted[name] {
			strange = append(strange, name)
		}
	}
	return lacking, strange, nil
}

// at is where a part lies.
func (v view) at(part string) string { return filepath.Join(v.dir, filepath.FromSlash(part)) }

// tidy removes what an interrupted process left in a view, and from a view that is shared
// all that belongs to no skill.
func (v view) tidy(m stamp) error {
	_, strange, err := v.compare(m)
	errs := []error{err}
	for _, name := range strange {
		if v.shared || strings.HasPrefix(name, blob.TempPrefix) {
			errs = append(errs, os.RemoveAll(v.at(name)))
		}
	}
	return errors.Join(errs...)
}

// settle makes what was placed in a view durable, where that is kept.
func (s *Store) settle(v view) error {
	if !v.shared {
		return nil
	}
	err := s.config.Files.SyncDir(v.at(library))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // there is no skill
	}
	return errors.Join(err, s.config.Files.SyncDir(v.dir))
}

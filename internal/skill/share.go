package skill

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"paddock/internal/blob"
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
	return s.bring(ctx, owner, view{dir: dir, shared: true})
}

// whole tells whether a view has what was noted, by the names of it, and nothing else.
// What one session alone sees is not looked at.
func (v view) whole(m made) bool {
	if !v.shared {
		return true
	}
	there, err := v.names()
	if err != nil || !there[indexFile] {
		return false
	}
	wanted := namesOf(m)
	for name := range there {
		if !wanted[name] {
			return false
		}
	}
	for name := range m.Shown {
		for _, part := range parts(name) {
			if !there[part] {
				return false
			}
		}
	}
	return true
}

// namesOf are what may lie in a view, and in its library.
func namesOf(m made) map[string]bool {
	wanted := map[string]bool{indexFile: true, madeOf: true, library: true}
	for name := range m.Shown {
		for _, part := range parts(name) {
			wanted[part] = true
		}
	}
	return wanted
}

// names are what lies in a view, and in its library.
func (v view) names() (map[string]bool, error) {
	there := map[string]bool{}
	for _, sub := range []string{"", library} {
		entries, err := os.ReadDir(filepath.Join(v.dir, sub))
		if err != nil && !(sub != "" && errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		for _, e := range entries {
			there[path.Join(sub, e.Name())] = true
		}
	}
	return there, nil
}

// lacks tells whether a part of a skill is missing in a view that is shared.
func (v view) lacks(name string) bool {
	if !v.shared {
		return false
	}
	for _, part := range parts(name) {
		if _, err := os.Lstat(v.at(part)); err != nil {
			return true
		}
	}
	return false
}

// at is where a part lies.
func (v view) at(part string) string { return filepath.Join(v.dir, filepath.FromSlash(part)) }

// tidy removes from a view that is shared what belongs to no skill: what somebody left
// who was cut short.
func (v view) tidy(m made) error {
	if !v.shared {
		return nil
	}
	there, err := v.names()
	errs := []error{err}
	wanted := namesOf(m)
	for name := range there {
		if !wanted[name] {
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

// swap puts a skill's files, which lie in from, in the place of what is there of the
// skill; from "": nothing. After an error there is what was there, as far as can be.
func (s *Store) swap(v view, from, name string) error {
	temp := v.at(blob.TempPrefix + rand.Text())
	defer os.RemoveAll(temp) // what is left, tidy removes
	before, after := filepath.Join(temp, "before"), filepath.Join(temp, "after")
	for _, dir := range []string{temp, before, filepath.Join(before, library), after} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	all := parts(name)
	if from != "" {
		if err := errors.Join(linkTree(from, after), s.syncTree(after), makeFolder(v.at(library))); err != nil {
			return err
		}
	}
	aside := view{dir: before}
	for k := len(all) - 1; k >= 0; k-- {
		err := os.Rename(v.at(all[k]), aside.at(all[k]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, move(aside, v, all[k+1:]))
		}
	}
	if from == "" {
		return nil
	}
	return move(view{dir: after}, v, all)
}

// move moves parts, as far as they are there.
func move(from, to view, all []string) error {
	var errs []error
	for _, part := range all {
		if err := os.Rename(from.at(part), to.at(part)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// syncTree makes the names in a folder, and in those below it, durable.
func (s *Store) syncTree(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	return together(all, s.config.Files.SyncDir)
}

// makeFolder makes a folder that everybody may read, where it is missing.
func makeFolder(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // whatever the umask is
}

package skill

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"paddock/internal/blob"
)

// What programs see of skills is a folder of each session's. The files of each skill
// are made once for an owner, below shownFolder, and linked into the sessions'
// folders: never between owners, so that whoever gets to write into a session's
// folder in spite of all can only spoil what is its owner's.

const (
	shownFolder    = "shown"
	generationFile = "generation"
	// shownAs is how skills are shown. With another number all are made anew.
	shownAs = "1"
	// madeOf is the file of a session's folder that says what it was made of.
	madeOf = ".made-of"
)

// made is what madeOf holds.
type made struct {
	Generation string            `json:"generation"`
	Shown      map[string]string `json:"shown"` // the skills' digests

	empty bool // there is nothing at all in the folder
}

func nameOfShown(digest string) string {
	return shownAs + "-" + strings.TrimPrefix(digest, digestPrefix)
}

func digestOfShown(name string) string {
	digits, ok := strings.CutPrefix(name, shownAs+"-")
	if !ok {
		return ""
	}
	return digestPrefix + digits
}

// renew says that an owner's skills are about to change. The lock is held.
func (s *Store) renew(owner string) error {
	return blob.WriteFile(s.config.Files, filepath.Join(s.folder(owner, ""), generationFile), []byte(rand.Text()))
}

// generation is another text when what an owner's sessions see is to be another one.
func (s *Store) generation(owner string) (string, error) {
	data, err := s.read(filepath.Join(s.folder(owner, ""), generationFile), 100)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", blob.Explain(err, "looking at the skills")
	}
	h := sha256.New()
	for _, in := range s.builtins() {
		fmt.Fprintln(h, in.Digest)
	}
	return fmt.Sprintf("%s %q %x", shownAs, data, h.Sum(nil)), nil
}

// Provide makes a folder hold what an owner's programs find at /skills: each skill's
// own folder, the modules to import it ([Skill.Modules]), and index.json. Where
// nothing has changed since the last time it reads two small files. Only one
// goroutine may provide a folder at a time; programs may read it meanwhile, and find
// a skill as it was or as it is, or none for an instant. A skill that is damaged is
// left out, which is an error after all others are there.
func (s *Store) Provide(ctx context.Context, owner, dir string) error {
	current, err := s.generation(owner)
	if err != nil {
		return err
	}
	was := readMade(dir)
	if was.Generation == current {
		return nil
	}
	unlock, err := s.lock(owner)
	if err != nil {
		return err
	}
	defer unlock()
	if current, err = s.generation(owner); err != nil {
		return err
	}
	records, err := s.List(owner)
	if err != nil {
		return err
	}
	return s.provide(ctx, owner, dir, was, made{Generation: current, Shown: map[string]string{}}, records)
}

// readMade tells what a folder was made of. What of it is not known to be there may be
// there in parts: somebody may have been cut short.
func readMade(dir string) (m made) {
	data, err := os.ReadFile(filepath.Join(dir, madeOf))
	if err != nil || json.Unmarshal(data, &m) != nil {
		m = made{}
	}
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		m.empty = err == nil && len(entries) == 0
	}
	return m
}

func (s *Store) provide(ctx context.Context, owner, dir string, was, is made, records []Record) error {
	var errs []error
	var shown []Record
	for _, r := range records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if was.Shown[r.Name] != r.Digest {
			if err := s.show(owner, dir, r, was.empty); err != nil {
				errs = append(errs, fmt.Errorf("showing the skill %s: %w", r.Name, err))
				continue
			}
		}
		is.Shown[r.Name] = r.Digest
		shown = append(shown, r)
	}
	for name := range was.Shown {
		if is.Shown[name] == "" {
			errs = append(errs, hide(dir, name))
		}
	}
	errs = append(errs, place(dir, indexFile, index(shown)))
	if errors.Join(errs...) != nil {
		is.Generation = "" // it is tried again before the next program
	}
	data, err := json.Marshal(is)
	if err != nil {
		return fmt.Errorf("writing about skills: %w", err)
	}
	return errors.Join(append(errs, place(dir, madeOf, data))...)
}

// place writes a file of a session's folder, as a whole.
func place(dir, name string, data []byte) error {
	temp := filepath.Join(dir, blob.TempPrefix+name)
	err := os.WriteFile(temp, data, 0o644)
	if err == nil {
		err = os.Chmod(temp, 0o644) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	return err
}

// parts are what belongs to a skill in a session's folder.
func parts(name string) []string {
	of := Matter{Name: name}.Package()
	all := []string{name, path.Join(library, of), of + ".py", name + ".js"}
	if of != name {
		all = append(all, of+".js")
	}
	return all
}

// hide takes a skill out of a session's folder.
func hide(dir, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	var errs []error
	for _, part := range parts(name) {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, filepath.FromSlash(part))))
	}
	return errors.Join(errs...)
}

// show puts a skill into a session's folder, in the place of what is there of it; fresh
// says that nothing is.
func (s *Store) show(owner, dir string, r Record, fresh bool) error {
	from, err := s.shown(owner, r)
	if err != nil {
		return err
	}
	if !fresh {
		if err := hide(dir, r.Name); err != nil {
			return err
		}
	}
	err = linkTree(from, dir)
	if err != nil {
		_ = hide(dir, r.Name)
	}
	return err
}

// shown gives the folder in which all that programs see of a skill lies, as it lies
// below /skills, and makes it where it is missing. The lock is held.
func (s *Store) shown(owner string, r Record) (string, error) {
	folder := s.folder(owner, shownFolder)
	final := filepath.Join(folder, nameOfShown(r.Digest))
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	in, err := s.Open(owner, r.Name)
	if err != nil {
		return "", err
	}
	files := in.Skill.Modules()
	instead := in.Skill.instead()
	for _, f := range in.Skill.Folder {
		if _, other := instead[f.Path]; !other {
			files = append(files, File{in.Name + "/" + f.Path, f.Executable, f.Data})
		}
	}
	if err := blob.MakeFolder(s.config.Files, folder); err != nil {
		return "", err
	}
	temp := filepath.Join(folder, blob.TempPrefix+rand.Text())
	err = s.fill(temp, files)
	if err == nil {
		err = forAll(temp, files)
	}
	if err == nil {
		err = s.config.Files.Rename(temp, final)
	}
	if err != nil {
		_ = removeTree(s.config.Files, temp) // what is left, sweep removes
		return "", blob.Explain(err, "showing a skill")
	}
	return final, blob.Explain(s.config.Files.SyncDir(folder), "showing a skill")
}

// forAll lets everybody read what fill wrote: programs may run as another user.
func forAll(dir string, files Folder) error {
	for _, f := range files {
		mode := fs.FileMode(0o444)
		if f.Executable {
			mode = 0o555
		}
		if err := os.Chmod(filepath.Join(dir, filepath.FromSlash(f.Path)), mode); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(at, 0o755)
	})
}

// linkTree makes the files of a folder those of another one as well, below what is
// there. Where the system has no links for them they are copied.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == from {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(at, from))
		if d.IsDir() {
			err := os.Mkdir(target, 0o755)
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			if err == nil {
				err = os.Chmod(target, 0o755) // whatever the umask is
			}
			return err
		}
		if err := os.Link(at, target); err == nil || errors.Is(err, fs.ErrExist) {
			return err
		}
		return copyFile(at, target)
	})
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Chmod(to, info.Mode().Perm())
}

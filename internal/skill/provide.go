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
	"paddock/internal/fault"
)

// What programs see of skills is a folder of each session's, or, where the isolation
// can show one folder to many, of each owner's (share.go). The files of each skill are
// made once for an owner, below shownFolder, and linked into those folders: never
// between owners, so that whoever gets to write into such a folder in spite of all can
// only spoil what is its owner's.

const (
	shownFolder    = "shown"
	generationFile = "generation"
	// shownAs is how skills are shown. With another number all are made again.
	shownAs = "2"
	// madeOf is the file of such a folder that says what it was made of.
	madeOf = ".made-of"
	// unsure is in the place of that where parts of a skill may be left.
	unsure = "?"
)

// made is what madeOf holds.
type made struct {
	Generation string            `json:"generation"`
	Shown      map[string]string `json:"shown"` // for each skill what it was linked from

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
	for _, digest := range s.builtinDigests() {
		fmt.Fprintln(h, digest)
	}
	return fmt.Sprintf("%s %q %x", shownAs, data, h.Sum(nil)), nil
}

// Provide makes a session's folder hold what an owner's programs find at /skills: each
// skill's own folder, the modules to import it ([Skill.Modules]), and index.json. Where
// nothing has changed since the last time it reads two small files. Only one
// goroutine may provide a folder at a time; programs may read it meanwhile, and find
// a skill as it was or as it is, or none for an instant. A skill that is damaged is
// left out, which is an error after all others are there.
func (s *Store) Provide(ctx context.Context, owner, dir string) error {
	return s.bring(ctx, owner, view{dir: dir})
}

// view is a folder that programs see.
type view struct {
	dir    string
	shared bool // by several sessions, and kept
}

// bring brings a view up to date.
func (s *Store) bring(ctx context.Context, owner string, v view) error {
	current, err := s.generation(owner)
	if err != nil {
		return err
	}
	if was := readMade(v.dir); was.Generation == current && v.whole(was) {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, provideTimeout)
	defer cancel()
	unlock, err := s.lockIn(within, owner) // others may be making the same, for the first time
	if err != nil {
		return err
	}
	defer unlock()
	if current, err = s.generation(owner); err != nil {
		return err
	}
	was := readMade(v.dir) // somebody else may have made it meanwhile
	if was.Generation == current && v.whole(was) {
		return nil
	}
	records, err := s.List(owner)
	if err != nil {
		return err
	}
	return s.provide(ctx, owner, v, was, made{Generation: current, Shown: map[string]string{}}, records)
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

// provide makes a view what the records say. The lock is held.
func (s *Store) provide(ctx context.Context, owner string, v view, was, is made, records []Record) error {
	if err := s.begin(v, &was, records); err != nil {
		return err
	}
	var errs []error
	var shown []Record
	for _, r := range records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if was.Shown[r.Name] != nameOfShown(r.Digest) {
			if err := s.show(owner, v, r, was.empty); err != nil {
				errs = append(errs, fmt.Errorf("showing the skill %s: %w", r.Name, err))
				is.Shown[r.Name] = unsure
				continue
			}
		}
		is.Shown[r.Name] = nameOfShown(r.Digest)
		shown = append(shown, r)
	}
	for name := range was.Shown {
		if is.Shown[name] == "" {
			if err := s.hide(v, name); err != nil {
				errs = append(errs, err)
				is.Shown[name] = unsure
			}
		}
	}
	errs = append(errs, v.tidy(is), v.place(indexFile, index(shown)), s.settle(v))
	if errors.Join(errs...) != nil {
		is.Generation = "" // it is tried again before the next program
	}
	return errors.Join(append(errs, v.note(is))...)
}

// begin writes down which skills are about to change, and forgets them: who is cut
// short from here on leaves them as nobody knows.
func (s *Store) begin(v view, was *made, records []Record) error {
	if was.empty {
		return nil
	}
	wanted := map[string]string{}
	for _, r := range records {
		wanted[r.Name] = nameOfShown(r.Digest)
	}
	changing := false
	for name, from := range was.Shown {
		if wanted[name] != from || v.lacks(name) {
			was.Shown[name], changing = unsure, true
		}
	}
	if !changing {
		return nil
	}
	return errors.Join(v.note(made{Shown: was.Shown}), s.settle(v))
}

// note writes what a view is made of.
func (v view) note(m made) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing about skills: %w", err)
	}
	return v.place(madeOf, data)
}

// place writes a file of a view, as a whole, and durably where the view is kept.
func (v view) place(name string, data []byte) error {
	temp := filepath.Join(v.dir, blob.TempPrefix+name)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && v.shared {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Chmod(temp, 0o644) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(v.dir, name))
	}
	return err
}

// parts are what belongs to a skill in a view: what a program may come by first is last.
func parts(name string) []string {
	of := FrontMatter{Name: name}.Package()
	all := []string{name, path.Join(library, of), of + ".py", name + ".js"}
	if of != name {
		all = append(all, of+".js")
	}
	return all
}

// hide takes a skill out of a view.
func (s *Store) hide(v view, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if v.shared {
		return s.swap(v, "", name)
	}
	var errs []error
	for _, part := range parts(name) {
		errs = append(errs, os.RemoveAll(v.at(part)))
	}
	return errors.Join(errs...)
}

// show puts a skill into a view, in the place of what is there of it; fresh says that
// nothing is.
func (s *Store) show(owner string, v view, r Record, fresh bool) error {
	from, err := s.shown(owner, r)
	if v.shared && err == nil {
		return s.swap(v, from, r.Name)
	}
	if !fresh {
		if failed := s.hide(v, r.Name); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if err == nil {
		err = linkTree(from, v.dir)
	}
	if err != nil && !v.shared {
		_ = s.hide(v, r.Name)
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
	if in.Source.Kind == Builtin && in.Skill.Folder.Digest() != r.Digest { // what is installed, Open has looked at
		return "", fault.New(fault.Internal, "paddock's own skill %q is not what it was built with", r.Name).WithHint("build paddock again, with make").WithCause(ErrDamaged)
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
		mode := fs.FileMode(0o644) // programs copy files with their modes, and change the copies
		if f.Executable {
			mode = 0o755
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
			return makeFolder(target)
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

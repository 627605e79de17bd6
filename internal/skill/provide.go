package skill

import (
	"context"
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
	"paddock/internal/linkfarm"
)

// What programs see of skills is a folder of each session's, or, where the isolation
// can show one folder to many, of each owner's (share.go). The files of each skill are
// made once for an owner, below shownFolder, and linked into those folders: never
// between owners, so that whoever gets to write into such a folder in spite of all can
// only spoil what is its owner's.

const (
	shownFolder    = "shown"
	generationFile = "generation"
	// layoutVersion is the version of what programs see of a skill. With another one all of
	// it is made again.
	layoutVersion = "2"
	// dirty is in the place of a tree's name where only parts of a skill may be there.
	dirty = "?"
)

// stamp is what [linkfarm.Stamp] holds in such a folder.
type stamp struct {
	Generation string            `json:"generation"`
	Shown      map[string]string `json:"shown"` // for each skill what it was linked from

	empty bool // there is nothing at all in the folder
}

func nameOfShown(digest string) string {
	return layoutVersion + "-" + strings.TrimPrefix(digest, digestPrefix)
}

func digestOfShown(name string) string {
	digits, ok := strings.CutPrefix(name, layoutVersion+"-")
	if !ok {
		return ""
	}
	return digestPrefix + digits
}

// generation is another text when what an owner's sessions see is to be another one.
func (s *Store) generation(owner string) (string, error) {
	data, _, err := s.document(context.Background(), ownerName(owner)+"/"+generationFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", blob.Explain(err, "looking at the skills")
	}
	h := sha256.New()
	for _, digest := range s.builtinDigests() {
		fmt.Fprintln(h, digest)
	}
	return fmt.Sprintf("%s %q %x", layoutVersion, data, h.Sum(nil)), nil
}

// Provide makes a session's folder hold what an owner's programs find at /skills: each
// skill's own folder, the modules to import it ([Skill.Modules]), and index.json. Where
// nothing has changed since the last time it reads two small files. Only one
// goroutine may provide a folder at a time; programs may read it meanwhile, and find
// a skill as it was or as it is, or none for an instant. A skill that is damaged is
// left out, which is an error after all others are there.
func (s *Store) Provide(ctx context.Context, owner, dir string) error {
	return s.refresh(ctx, owner, view{dir: dir})
}

// view is a folder that programs see.
type view struct {
	dir    string
	shared bool // by several sessions, and kept
}

// refresh brings a view up to date.
func (s *Store) refresh(ctx context.Context, owner string, v view) error {
	current, err := s.generation(owner)
	if err != nil {
		return err
	}
	if was := readStamp(v.dir); was.Generation == current && v.whole(was) {
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
	was := readStamp(v.dir) // somebody else may have made it meanwhile
	if was.Generation == current && v.whole(was) {
		return nil
	}
	records, err := s.List(owner)
	if err != nil {
		return err
	}
	return s.provide(ctx, owner, v, was, stamp{Generation: current, Shown: map[string]string{}}, records)
}

// readStamp reads what a folder was made of. Of a skill that the stamp does not name, parts
// may be there: an interrupted process left them.
func readStamp(dir string) (m stamp) {
	data, err := os.ReadFile(filepath.Join(dir, linkfarm.Stamp))
	if err != nil || json.Unmarshal(data, &m) != nil {
		m = stamp{}
	}
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		m.empty = err == nil && len(entries) == 0
	}
	return m
}

// provide makes a view what the records say. The lock is held.
func (s *Store) provide(ctx context.Context, owner string, v view, was, is stamp, records []Record) error {
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
			if err := s.show(ctx, owner, v, r, was.empty); err != nil {
				errs = append(errs, fmt.Errorf("showing the skill %s: %w", r.Name, err))
				is.Shown[r.Name] = dirty
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
				is.Shown[name] = dirty
			}
		}
	}
	errs = append(errs, v.tidy(is), v.put(indexFile, index(shown)), s.settle(v))
	if errors.Join(errs...) != nil {
		is.Generation = "" // it is tried again before the next program
	}
	return errors.Join(append(errs, v.note(is))...)
}

// begin writes down that the skills which are about to change are dirty: a process that is
// interrupted from here on may leave parts of them.
func (s *Store) begin(v view, was *stamp, records []Record) error {
	if was.empty {
		return nil
	}
	wanted := map[string]string{}
	for _, r := range records {
		wanted[r.Name] = nameOfShown(r.Digest)
	}
	lacking := map[string]bool{}
	if v.shared {
		var err error
		if lacking, _, err = v.compare(*was); err != nil {
			return err
		}
	}
	changing := false
	for name, from := range was.Shown {
		if wanted[name] != from || lacking[name] {
			was.Shown[name], changing = dirty, true
		}
	}
	if !changing {
		return nil
	}
	return errors.Join(v.note(stamp{Shown: was.Shown}), s.settle(v))
}

// note writes what a view is made of.
func (v view) note(m stamp) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing about skills: %w", err)
	}
	return v.put(linkfarm.Stamp, data)
}

// put writes a file of a view, as a whole, and durably where the view is kept.
func (v view) put(name string, data []byte) error {
	return linkfarm.Disk{Files: blob.OS, Public: true, Durable: v.shared}.Put(filepath.Join(v.dir, name), data)
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
	return linkfarm.Swap(v.dir, parts(name), nil)
}

// show puts a skill into a view, in the place of what is there of it; fresh says that
// nothing is. A skill that cannot be shown is hidden.
func (s *Store) show(ctx context.Context, owner string, v view, r Record, fresh bool) error {
	from, err := s.shown(ctx, owner, r)
	switch {
	case err != nil:
	case fresh && !v.shared:
		err = linkfarm.LinkTree(from, v.dir)
	default:
		err = linkfarm.Swap(v.dir, parts(r.Name), func(fresh string) error {
			err := linkfarm.LinkTree(from, fresh)
			if err == nil && v.shared {
				err = linkfarm.SyncTree(s.config.Files, fresh)
			}
			return err
		})
	}
	if err != nil {
		return errors.Join(err, s.hide(v, r.Name))
	}
	return nil
}

// shown gives the folder in which all that programs see of a skill lies, as it lies
// below /skills, and makes it where it is missing. The lock is held.
func (s *Store) shown(ctx context.Context, owner string, r Record) (string, error) {
	final := filepath.Join(s.folder(owner, shownFolder), nameOfShown(r.Digest))
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
	script, _, err := s.script(ctx, owner, in.Skill, in.Source.Kind)
	if err != nil {
		return "", err
	}
	files := in.Skill.modules(script)
	instead := in.Skill.instead()
	for _, f := range in.Skill.Folder {
		if _, other := instead[f.Path]; !other {
			files = append(files, File{Path: in.Name + "/" + f.Path, Executable: f.Executable, Data: f.Data})
		}
	}
	disk := linkfarm.Disk{Files: s.config.Files, Durable: true, Public: true}
	err = disk.Make(final, func(fresh string) error { return disk.Fill(fresh, files) }, nil)
	return final, blob.Explain(err, "showing a skill")
}

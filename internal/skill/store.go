package skill

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/linkfarm"
	"paddock/internal/lock"
	"paddock/internal/table"
	"paddock/internal/textsafe"
)

// Config is how a store works.
type Config struct {
	// Dir is its folder, which is made where it is missing. Several processes may
	// share it.
	Dir string
	// Files is the disk; nil: the operating system's.
	Files blob.Files
	// Table is where records, counts and generations are; nil: in Dir, as documents of the
	// names that they have there. The trees that records name are in Dir in any case.
	Table table.Table
	// Transport is what skills are fetched by, typically egress's; nil: nothing is
	// fetched, only folders and what models write are installed.
	Transport http.RoundTripper
	GitHub    GitHubConfig
	Limits    Limits
	// Builtin gives the skills that every owner has, in the order of their names;
	// nobody can replace or remove them. It is called often, and gives the same each
	// time. Nil: there are none.
	Builtin func() []*Installed
	// BuiltinDigests are the digests of all that Builtin gives, in any order that stays
	// the same, where they are known without it; nil: Builtin tells them.
	BuiltinDigests []string
	// Helpers do what could take a server's memory (the jobs Pack and Script); nil: it is done in this
	// process, for tests.
	Helpers *helper.Runner
	// Skills is how many an owner may have; zero: 500.
	Skills int
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// How long an owner's lock is waited for: others hold it while they write a skill or
// show some for the first time, on a slow disk, and never while they fetch one. A
// program without its skills fails, and a count is worth no waiting.
const (
	lockTimeout    = 30 * time.Second
	provideTimeout = time.Minute
	countTimeout   = 5 * time.Second
)

// Store keeps the skills of owners:
//
//	<owner>/trees/<digest>/…      folders, which do not change
//	<owner>/records/<name>.json   which of them a skill is, and where it came from
//	<owner>/counts/<name>.json    how often it was used
//	<owner>/shown/<digest>/…      what programs see of a skill; made when it is missing
//	<owner>/generation            another text after each change
//
// A record is replaced as a whole once its folder is on the disk: after a crash
// there is the old skill or the new one. It is for any number of goroutines.
type Store struct {
	config  Config
	fetcher fetcher
	turns   turns
}

// NewStore makes one. Nothing is read yet.
func NewStore(c Config) *Store {
	if c.Files == nil {
		c.Files = blob.OS
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Skills = cmp.Or(c.Skills, 500)
	c.Limits = c.Limits.withDefaults()
	if c.Table == nil {
		c.Table = documentsIn(c.Dir, c.Files)
	}
	return &Store{config: c, fetcher: fetcher{transport: c.Transport, github: c.GitHub, limits: c.Limits, helpers: c.Helpers}}
}

// Installed is a skill of an owner's.
type Installed struct {
	Record
	Skill *Skill
}

// Result is what an installation gives.
type Result struct {
	*Installed
	// Diff is what changed; nil: the skill was not there before.
	Diff *Diff
}

// Look fetches a skill and checks it, and keeps nothing. A source whose digest is
// another one than it names is a fault.Conflict. ctx bounds fetching.
func (s *Store) Look(ctx context.Context, from Source) (*Skill, Provenance, error) {
	return s.look(ctx, "", from)
}

func (s *Store) look(ctx context.Context, owner string, from Source) (*Skill, Provenance, error) {
	origin := Provenance{Kind: from.Kind, Text: from.Text, Ref: from.Ref, Origin: from.origin()}
	f := s.fetcher
	f.owner = owner
	got, err := f.fetch(ctx, from)
	if err != nil {
		return nil, origin, err
	}
	checked, err := Check(got.Folder, got.name, got.given)
	if err != nil {
		return nil, origin, err
	}
	if from.Digest != "" && from.Digest != checked.Folder.Digest() {
		return nil, origin, fault.New(fault.Conflict, "the skill is not what the source's sha256 says").
			WithHint("it is %s: look at what changed before you pin that", checked.Folder.Digest())
	}
	if from.Kind == Page {
		checked.Warnings = append(checked.Warnings, Warning{MainFile, 0, "only this file was fetched, none that it refers to"})
	}
	origin.Commit = got.commit
	return checked, origin, nil
}

// Install fetches a skill, checks it, and makes it the owner's. One of the same
// name is updated where it came from the same place; otherwise it is in the way,
// a fault.Conflict, as is a source whose digest is another one than it names. ctx
// bounds fetching; nothing changes after an error.
func (s *Store) Install(ctx context.Context, owner string, from Source) (*Result, error) {
	checked, origin, err := s.look(ctx, owner, from)
	if err != nil {
		return nil, err
	}
	return s.keep(ctx, owner, checked, origin)
}

// Save makes a skill of a program that a model wrote; language is one of Languages,
// "python" when empty. It replaces what was saved under the name before,
// and nothing that was installed. Tags are of a-z, 0-9, - and _.
func (s *Store) Save(owner, name, language, code, description string, tags []string) (*Result, error) {
	folder, err := written(name, language, code, description, tags)
	if err != nil {
		return nil, err
	}
	checked, err := Check(folder, name, true)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // what is done is short
	if _, why, err := s.script(ctx, owner, checked, Saved); err != nil {
		return nil, err
	} else if why != "" {
		return nil, fault.New(fault.Invalid, "the code cannot be imported: %.200s", why)
	}
	return s.keep(ctx, owner, checked, Provenance{Kind: Saved, Text: string(Saved), Origin: string(Saved)})
}

// keep writes a checked skill.
func (s *Store) keep(ctx context.Context, owner string, checked *Skill, from Provenance) (*Result, error) {
	if _, why, err := s.script(ctx, owner, checked, from.Kind); err != nil {
		return nil, err
	} else if why != "" {
		checked.Warnings = append(checked.Warnings, Warning{MainFile, 0, "its JavaScript cannot be imported: " + textsafe.Escape(why)})
	}
	unlock, err := s.lock(owner)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var kept *Result
	err = table.Alone(ctx, s.config.Table, s.documentOf(owner, recordsFolder, checked.Name), func(ctx context.Context) error {
		kept, err = s.keepLocked(ctx, owner, checked, from)
		return err
	})
	if err == nil {
		_ = s.sweep(owner) // the next one will have to do it
	}
	return kept, err
}

// keepLocked is keep where the lock is held.
func (s *Store) keepLocked(ctx context.Context, owner string, checked *Skill, from Provenance) (*Result, error) {
	was, err := s.revision(ctx, owner, checked.Name)
	if err != nil {
		return nil, err
	}
	from.At = s.config.Now().UTC()
	fresh := recordOf(checked, checked.Folder.Digest(), from)
	var changed *Diff
	old, err := s.open(owner, checked.Name)
	switch {
	case s.builtin(checked.Name) != nil:
		return nil, fault.New(fault.Conflict, "paddock has a skill %q of its own", checked.Name).WithHint("choose another name")
	case fault.KindOf(err) == fault.NotFound:
		if all, err := s.records(owner); err != nil {
			return nil, err
		} else if len(all) >= s.config.Skills {
			return nil, fault.New(fault.Exhausted, "you have %d skills already", len(all)).WithHint("remove one")
		}
	case errors.Is(err, ErrDamaged): // what is left of it says where it came from, or not even that
		record, readErr := s.record(owner, checked.Name)
		if readErr == nil && record.Source.Origin != from.Origin {
			return nil, errOrigin(record, from)
		}
	case err != nil:
		return nil, err
	case old.Source.Origin != from.Origin:
		return nil, errOrigin(&old.Record, from)
	default:
		d := diff(old.Skill.Folder, checked.Folder)
		changed = &d
	}
	if err := s.writeTree(owner, fresh.Digest, checked.Folder); err != nil {
		return nil, err
	}
	err = s.changing(ctx, owner, func() error { return s.writeRecord(ctx, owner, fresh, was) })
	if err != nil {
		return nil, err
	}
	return &Result{&Installed{*fresh, checked}, changed}, nil
}

func errOrigin(old *Record, from Provenance) error {
	return fault.New(fault.Conflict, "there is a skill %q already, from %.100q", old.Name, textsafe.Escape(old.Source.Text)).
		WithHint("remove it before you take one of that name from %.100q", textsafe.Escape(from.Text))
}

// Open reads a skill, and sees that it is what was installed: ErrDamaged where it
// is not, a fault.NotFound where there is none.
func (s *Store) Open(owner, name string) (*Installed, error) {
	if in := s.builtin(name); in != nil {
		one := *in
		one.Counts = s.counts(owner, name)
		return &one, nil
	}
	in, err := s.open(owner, name)
	if errors.Is(err, ErrDamaged) {
		in, err = s.open(owner, name) // it may have been updated, and the old folder swept, meanwhile
	}
	return in, err
}

// List gives an owner's skills, by name, with those that everybody has. Their files
// are not read.
func (s *Store) List(owner string) ([]Record, error) {
	all, err := s.records(owner)
	if err != nil {
		return nil, err
	}
	for _, in := range s.builtins() {
		// One that was installed before paddock had its like can only be removed.
		all = slices.DeleteFunc(all, func(r Record) bool { return r.Name == in.Name })
		all = append(all, in.Record)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	for k := range all {
		all[k].Counts = s.counts(owner, all[k].Name)
	}
	return all, nil
}

// Remove takes a skill away, and what is counted of it. What sessions see of it they
// see until the next program: of their own, or where they share a folder of any.
func (s *Store) Remove(owner, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	unlock, err := s.lock(owner)
	if err != nil {
		return err
	}
	defer unlock()
	ctx := context.Background()
	err = s.changing(ctx, owner, func() error {
		return s.config.Table.Delete(ctx, s.documentOf(owner, recordsFolder, name), table.Any)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.builtin(name) != nil:
		return fault.New(fault.Denied, "the skill %q is paddock's own", name).WithHint("only what was installed or saved can be removed")
	case errors.Is(err, fs.ErrNotExist):
		return errNone(name)
	case err != nil:
		return blob.Explain(err, "removing a skill")
	}
	_ = s.sweep(owner)                                                                 // the next one will have to do it
	_ = s.config.Table.Delete(ctx, s.documentOf(owner, countsFolder, name), table.Any) // a count of nothing does no harm
	return nil
}

// dir is where a skill's files lie on this host, as they were installed.
func (s *Store) dir(owner string, r Record) string {
	return filepath.Join(s.folder(owner, treesFolder), strings.TrimPrefix(r.Digest, digestPrefix))
}

// sweep removes the folders of an owner's that no skill has any more, and what
// interrupted installations left. The lock is held.
func (s *Store) sweep(owner string) error {
	all, err := s.records(owner)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, r := range all {
		keep[r.Digest] = true
	}
	shown := maps.Clone(keep)
	for _, digest := range s.builtinDigests() {
		shown[digest] = true
	}
	var errs []error
	for _, name := range []string{"", recordsFolder, countsFolder, treesFolder, shownFolder} {
		dir := s.folder(owner, name)
		entries, err := s.config.Files.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			gone := strings.HasPrefix(e.Name(), blob.TempPrefix)
			switch name {
			case treesFolder:
				gone = gone || !keep[digestPrefix+e.Name()]
			case shownFolder:
				gone = gone || !shown[digestOfShown(e.Name())]
			}
			if gone {
				errs = append(errs, linkfarm.RemoveTree(s.config.Files, filepath.Join(dir, e.Name())))
			}
		}
	}
	return blob.Explain(errors.Join(errs...), "removing old skills")
}

// Used counts a use of a skill. A count that cannot be written, or is lost with the
// power, is an error that nobody needs to care about.
func (s *Store) Used(owner, name string, succeeded bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	unlock, err := s.lockIn(ctx, owner)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.record(owner, name); err != nil && s.builtin(name) == nil {
		return err
	}
	return table.Alone(ctx, s.config.Table, s.documentOf(owner, countsFolder, name), func(ctx context.Context) error {
		c, was := s.counted(ctx, owner, name)
		c.Used++
		if succeeded {
			c.Succeeded++
		}
		c.Last = s.config.Now().UTC()
		return s.writeCounts(ctx, owner, name, c, was)
	})
}

// ownerName is what an owner's folder is called, as sessions' are.
func ownerName(owner string) string {
	if owner == "local" {
		return owner
	}
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

func (s *Store) folder(owner, name string) string {
	return filepath.Join(s.config.Dir, ownerName(owner), name)
}

// lock keeps other processes and goroutines from an owner's skills.
func (s *Store) lock(owner string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	return s.lockIn(ctx, owner)
}

// lockIn is lock that waits until ctx ends. Goroutines get it in the order in which they
// came: who looks for a file's lock now and then may find it held for ever by others who
// take turns.
func (s *Store) lockIn(ctx context.Context, owner string) (unlock func(), err error) {
	leave, err := s.turns.take(ctx, owner)
	if err != nil {
		return nil, errBusy(ctx, err)
	}
	dir := s.folder(owner, "")
	if err := blob.MakeFolder(s.config.Files, dir); err != nil {
		leave()
		return nil, err
	}
	release, err := lock.AcquireIn(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		leave()
		return nil, errBusy(ctx, err)
	}
	return func() { _ = release(); leave() }, nil
}

// errBusy makes a fault of why there is no lock.
func errBusy(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Unavailable, "somebody else is writing your skills").WithHint("try again").WithCause(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return blob.Explain(fmt.Errorf("locking the skills: %w", err), "locking skills")
}

// records reads all of an owner's. One that is damaged is left out.
func (s *Store) records(owner string) ([]Record, error) {
	names, err := s.config.Table.Names(context.Background(), ownerName(owner)+"/"+recordsFolder)
	if err != nil {
		return nil, blob.Explain(err, "listing skills")
	}
	all := []Record{}
	for _, document := range names {
		name, ok := strings.CutSuffix(path.Base(document), documentEnd)
		if !ok || checkName(name) != nil {
			continue
		}
		r, err := s.record(owner, name)
		switch {
		case fault.KindOf(err) == fault.NotFound, errors.Is(err, ErrDamaged):
			continue // it vanished, or Open says what is with it
		case err != nil:
			return nil, err
		}
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

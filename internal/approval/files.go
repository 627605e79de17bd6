package approval

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
)

// locked has the owner's approvals for f alone. Where there is no folder it is an
// fs.ErrNotExist.
func (s *Store) locked(folder string, f func() error) error {
	s.using.Lock()
	defer s.using.Unlock()
	unlock, err := lock.Acquire(filepath.Join(s.dir, folder, lockFile), lockTimeout)
	switch {
	case errors.Is(err, lock.ErrHeld):
		return fault.New(fault.Unavailable, "the approvals are in use").WithHint("try again in a moment").WithCause(err)
	case err != nil:
		return err
	}
	return errors.Join(f(), unlock())
}

// alter changes one approval, whole or not at all.
func (s *Store) alter(ctx context.Context, owner, id string, change func(*Approval) error) (a Approval, err error) {
	folder := ownerFolder(owner)
	err = s.locked(folder, func() error {
		f, err := s.find(folder, func(n name) bool { return n.id == id })
		if err == nil {
			a, err = s.read(f)
		}
		if err == nil && a.Owner != owner {
			err = unknown(id)
		}
		if err == nil {
			err = change(&a)
		}
		if err != nil {
			return err
		}
		return s.put(ctx, a)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = unknown(id)
	}
	return a, err
}

// put records and keeps an approval. Its owner's are locked.
func (s *Store) put(ctx context.Context, a Approval) error {
	if s.options.Record != nil {
		if err := s.options.Record(ctx, a); err != nil {
			return err
		}
	}
	data, err := a.encode()
	if err != nil {
		return err
	}
	n := name{folder: ownerFolder(a.Owner), place: a.place(), id: a.ID}
	if err := blob.WriteFile(s.options.Files, n.path(s.dir), data); err != nil {
		return err
	}
	s.notify()
	return nil
}

func (s *Store) get(folder, id string) (a Approval, err error) {
	err = s.locked(folder, func() error {
		f, err := s.find(folder, func(n name) bool { return n.id == id })
		if err == nil {
			a, err = s.read(f)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = unknown(id)
	}
	return a, err
}

func (s *Store) listed(folder string) (all []Approval, err error) {
	err = s.locked(folder, func() error {
		all, err = s.list(folder)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

func unknown(id string) error {
	return fault.New(fault.NotFound, "there is no approval %q", cut(id, 100)).WithHint("paddock approvals ls lists those that there are")
}

// name is an approval's file.
type name struct{ folder, place, id string }

const ending = ".json"

func (n name) path(dir string) string {
	return filepath.Join(dir, n.folder, n.place+"."+n.id+ending)
}

// names lists the files of a folder that approvals have.
func (s *Store) names(folder string) (all []name, err error) {
	entries, err := s.options.Files.ReadDir(filepath.Join(s.dir, folder))
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ending)
		place, id, two := strings.Cut(base, ".")
		if ok && two && idPattern.MatchString(id) {
			all = append(all, name{folder, place, id})
		}
	}
	return all, err
}

// find gives the one file that is wanted.
func (s *Store) find(folder string, wanted func(name) bool) (name, error) {
	all, err := s.names(folder)
	if err != nil {
		return name{}, err
	}
	if at := slices.IndexFunc(all, wanted); at >= 0 {
		return all[at], nil
	}
	return name{}, fault.New(fault.NotFound, "there is no such approval").WithHint("paddock approvals ls lists those that there are")
}

// read gives an approval as it is now. What is damaged is an error: it lets nothing
// through, and nothing takes its place.
func (s *Store) read(n name) (Approval, error) {
	f, err := s.options.Files.Open(n.path(s.dir))
	if err != nil {
		return Approval{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Approval{}, blob.Explain(err, "reading an approval")
	}
	a, err := decode(data, n.folder, n.place, n.id)
	if err != nil {
		return Approval{}, fault.New(fault.Unavailable, "the approval %s is damaged, and counts for nothing", n.id).
			WithHint("the operator can remove its file").WithCause(err)
	}
	return a.at(s.options.Now()), nil
}

// list gives a folder's approvals, the oldest first; those that are damaged are logged.
func (s *Store) list(folder string) (all []Approval, err error) {
	names, err := s.names(folder)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		a, err := s.read(n)
		if err != nil {
			s.options.Log.Warn("an approval cannot be read", "approval", n.id, "cause", fault.CauseOf(err))
			continue
		}
		all = append(all, a)
	}
	slices.SortStableFunc(all, earlier)
	return all, nil
}

// folders are those of the owners.
func (s *Store) folders() (all []string, err error) {
	entries, err := s.options.Files.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all, err
}

// makeRoom removes what is over for too long, and refuses one pending approval too many.
func (s *Store) makeRoom(folder string) error {
	all, err := s.list(folder)
	if err != nil {
		return err
	}
	waiting := 0
	var over []Approval
	for _, a := range all {
		if a.State == Pending {
			waiting++
		} else if a.State != Granted {
			over = append(over, a)
		}
	}
	s.removeOld(folder, over)
	if waiting < s.options.Pending {
		return nil
	}
	return fault.New(fault.Exhausted, "%d calls wait for somebody to allow them, and no more may", waiting).
		WithHint("a person has to decide about those first: paddock approvals ls")
}

// removeOld removes approvals that are over, which come the oldest first.
func (s *Store) removeOld(folder string, over []Approval) {
	before := s.now().Add(-s.options.Keep)
	surplus := len(over) - s.options.Kept
	for k, a := range over {
		if k >= surplus && later(a.Expires, a.Decided).After(before) {
			continue
		}
		if err := s.options.Files.Remove(name{folder, a.place(), a.ID}.path(s.dir)); err != nil {
			s.options.Log.Warn("an old approval cannot be removed", "approval", a.ID, "cause", err)
		}
	}
	s.removeTemps(folder)
}

// removeTemps removes what processes have left that ended while they wrote.
func (s *Store) removeTemps(folder string) {
	dir := filepath.Join(s.dir, folder)
	entries, _ := s.options.Files.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), blob.TempPrefix) {
			_ = s.options.Files.Remove(filepath.Join(dir, e.Name())) // the next one does it
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Sweep removes what is over for too long, of all owners.
func (s *Store) Sweep() error {
	folders, err := s.folders()
	for _, folder := range folders {
		err = errors.Join(err, s.locked(folder, func() error {
			all, err := s.list(folder)
			if err == nil {
				s.removeOld(folder, slices.DeleteFunc(all, func(a Approval) bool { return a.State.Open() }))
			}
			return err
		}))
	}
	return err
}

package approval

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/table"
)

// locked has the owner's approvals for f alone, or in a cluster's table calls f again where
// what it writes last was changed by another meanwhile. Where there is no folder it is an
// fs.ErrNotExist.
func (s *Store) locked(folder string, f func(context.Context) error) error {
	if s.dir != "" {
		s.using.Lock()
		defer s.using.Unlock()
	}
	return table.Alone(context.Background(), s.table, folder+"/"+lockFile, f)
}

// folderOf gives the table of a folder.
func folderOf(dir string, files blob.Files) *table.Folder {
	return table.NewFolder(table.FolderConfig{
		Dir: dir, Files: files, Most: maxFile, Document: func(name string) bool { _, ok := parseName(name); return ok },
		Lock: func(name string) string { return path.Join(path.Dir(name), lockFile) }, Timeout: lockTimeout,
		Locked: func(err error) error {
			if errors.Is(err, lock.ErrHeld) {
				return fault.New(fault.Unavailable, "the approvals are in use").WithHint("try again in a moment").WithCause(err)
			}
			return err
		},
	})
}

// alter changes one approval, whole or not at all.
func (s *Store) alter(ctx context.Context, owner, id string, change func(*Approval) error) (a Approval, err error) {
	folder := ownerFolder(owner)
	err = s.locked(folder, func(held context.Context) error {
		n, err := s.find(held, folder, func(n name) bool { return n.id == id })
		if err != nil {
			return err
		}
		var was table.Revision
		if a, was, err = s.read(held, n); err != nil {
			return err
		}
		if a.Owner != owner {
			return unknown(id)
		}
		if err := change(&a); err != nil {
			return err
		}
		return s.put(ctx, held, a, was)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = unknown(id)
	}
	return a, err
}

// put records and keeps an approval that was at a revision. Its owner's are locked in held.
func (s *Store) put(ctx, held context.Context, a Approval, was table.Revision) error {
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
	_, err = s.table.Put(held, n.document(), data, was)
	return err
}

func (s *Store) get(folder, id string) (a Approval, err error) {
	err = s.locked(folder, func(held context.Context) error {
		n, err := s.find(held, folder, func(n name) bool { return n.id == id })
		if err == nil {
			a, _, err = s.read(held, n)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = unknown(id)
	}
	return a, err
}

func (s *Store) listed(folder string) (all []Approval, err error) {
	err = s.locked(folder, func(held context.Context) error {
		all, err = s.list(held, folder)
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

// name is an approval's document.
type name struct{ folder, place, id string }

const ending = ".json"

func (n name) document() string { return n.folder + "/" + n.place + "." + n.id + ending }

// parseName gives the name of a document; false: it is not an approval.
func parseName(document string) (name, bool) {
	folder, file, in := strings.Cut(document, "/")
	base, ok := strings.CutSuffix(file, ending)
	place, id, two := strings.Cut(base, ".")
	return name{folder, place, id}, in && ok && two && idPattern.MatchString(id)
}

// names lists the approvals of a folder; "" are all.
func (s *Store) names(ctx context.Context, folder string) (all []name, err error) {
	documents, err := s.table.Names(ctx, folder)
	for _, d := range documents {
		if n, ok := parseName(d); ok {
			all = append(all, n)
		}
	}
	return all, err
}

// find gives the one document that is wanted.
func (s *Store) find(ctx context.Context, folder string, wanted func(name) bool) (name, error) {
	all, err := s.names(ctx, folder)
	if err != nil {
		return name{}, err
	}
	if at := slices.IndexFunc(all, wanted); at >= 0 {
		return all[at], nil
	}
	return name{}, fault.New(fault.NotFound, "there is no such approval").WithHint("paddock approvals ls lists those that there are")
}

// read gives an approval as it is now, and its revision. What is damaged is an error: it
// lets nothing through, and nothing takes its place.
func (s *Store) read(ctx context.Context, n name) (Approval, table.Revision, error) {
	d, err := s.table.Get(ctx, n.document(), table.None)
	if errors.Is(err, fs.ErrNotExist) {
		return Approval{}, table.None, err
	}
	if err != nil && !errors.Is(err, table.ErrTooLarge) {
		return Approval{}, table.None, blob.Explain(err, "reading an approval")
	}
	var a Approval
	if err == nil {
		a, err = decode(d.Data, n.folder, n.place, n.id)
	}
	if err != nil {
		return Approval{}, d.Revision, fault.New(fault.Unavailable, "the approval %s is damaged, and counts for nothing", n.id).
			WithHint("the operator can remove its file").WithCause(err)
	}
	return a.at(s.options.Now()), d.Revision, nil
}

// list gives a folder's approvals, the oldest first; those that are damaged are logged.
func (s *Store) list(ctx context.Context, folder string) (all []Approval, err error) {
	names, err := s.names(ctx, folder)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		a, _, err := s.read(ctx, n)
		if err != nil {
			s.warn(n, err)
			continue
		}
		all = append(all, a)
	}
	slices.SortStableFunc(all, earlier)
	return all, nil
}

func (s *Store) warn(n name, err error) {
	s.options.Log.Warn("an approval cannot be read", "approval", n.id, "cause", fault.CauseOf(err))
}

// folders are those of the owners. One that is empty may have its first approval under its
// lock just now.
func (s *Store) folders() (all []string, err error) {
	if s.dir == "" {
		names, err := s.names(context.Background(), "")
		for _, n := range names {
			all = append(all, n.folder)
		}
		slices.Sort(all)
		return slices.Compact(all), err
	}
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
func (s *Store) makeRoom(ctx context.Context, folder string) error {
	all, err := s.list(ctx, folder)
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
	s.removeOld(ctx, folder, over)
	if waiting < s.options.Pending {
		return nil
	}
	return fault.New(fault.Exhausted, "%d calls wait for somebody to allow them, and no more may", waiting).
		WithHint("a person has to decide about those first: paddock approvals ls")
}

// removeOld removes approvals that are over, which come the oldest first.
func (s *Store) removeOld(ctx context.Context, folder string, over []Approval) {
	before := s.now().Add(-s.options.Keep)
	surplus := len(over) - s.options.Kept
	for k, a := range over {
		if k >= surplus && later(a.Expires, a.Decided).After(before) {
			continue
		}
		err := s.table.Delete(ctx, name{folder, a.place(), a.ID}.document(), table.Any)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.options.Log.Warn("an old approval cannot be removed", "approval", a.ID, "cause", err)
		}
	}
	s.removeTemps(folder)
}

// removeTemps removes what processes have left that ended while they wrote.
func (s *Store) removeTemps(folder string) {
	if s.dir == "" {
		return
	}
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
		err = errors.Join(err, s.locked(folder, func(held context.Context) error {
			all, err := s.list(held, folder)
			if err == nil {
				s.removeOld(held, folder, slices.DeleteFunc(all, func(a Approval) bool { return a.State.Open() }))
			}
			return err
		}))
	}
	return err
}

package e2b

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// mostForks bounds how many forks one call makes.
const mostForks = 100

type forked struct {
	Sandbox *made    `json:"sandbox,omitempty"`
	Error   *Problem `json:"error,omitempty"`
}

// fork makes sandboxes that begin as this one is now.
func (s *Server) fork(r *http.Request, owner session.Owner) (any, int, error) {
	b, q, timeout, err := s.called(r, owner, defaultTimeoutV2)
	if err != nil {
		return nil, 0, err
	}
	count := 1
	if q.Count != nil {
		count = *q.Count
	}
	if count < 1 || count > mostForks {
		return nil, 0, fault.New(fault.Invalid, "a sandbox is forked 1 to %d times at once", mostForks)
	}
	forks, err := s.config.Sessions.Fork(r.Context(), owner, b.session, "", count)
	if err != nil {
		return nil, 0, err
	}
	all := []forked{}
	for _, f := range forks {
		one, now := b.now(), time.Now()
		one.ID, one.Session, one.Started, one.End, one.Timeout, one.Paused, one.Cold = newID(), f.ID, now, now.Add(timeout), timeout, false, false
		child, err := s.start(r, one)
		if err != nil {
			all = append(all, forked{Error: &Problem{StatusOf(err), Text(err)}})
			continue
		}
		told := s.told(child)
		all = append(all, forked{Sandbox: &told})
	}
	return all, http.StatusCreated, nil
}

type snapshotTold struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

// snapshot keeps a sandbox as it is now, for others to begin with: a fork that never runs.
func (s *Server) snapshot(r *http.Request, owner session.Owner) (any, int, error) {
	b, q, _, err := s.called(r, owner, 0)
	if err != nil {
		return nil, 0, err
	}
	forks, err := s.config.Sessions.Fork(r.Context(), owner, b.session, "", 1)
	if err != nil {
		return nil, 0, err
	}
	one := b.now()
	one.ID, one.Session, one.Snapshot, one.Of, one.Started, one.Names = newID(), forks[0].ID, true, b.id, time.Now(), nil
	if q.Name != "" {
		one.Names = []string{q.Name}
	}
	snap, err := s.add(one)
	if err != nil {
		return nil, 0, err
	}
	return snap.toldAsSnapshot(), http.StatusCreated, nil
}

func (b *sandbox) toldAsSnapshot() snapshotTold {
	r := b.now()
	names := r.Names
	if names == nil {
		names = []string{}
	}
	return snapshotTold{r.ID, names}
}

// snapshotOf finds an owner's snapshot by its id, or the newest of a name; nil: there is none.
func (s *Server) snapshotOf(owner session.Owner, name string) (found *sandbox) {
	for _, one := range s.list() {
		r := one.now()
		if one.owner != owner || !r.Snapshot || r.ID != name && !slices.Contains(r.Names, strings.TrimSuffix(name, ":default")) {
			continue
		}
		if found == nil || r.Started.After(found.now().Started) {
			found = one
		}
	}
	return found
}

func (s *Server) deleteSnapshot(r *http.Request, owner session.Owner) (any, int, error) {
	snap := s.snapshotOf(owner, r.PathValue("id"))
	if snap == nil {
		return nil, 0, fault.New(fault.NotFound, "Template %q not found", r.PathValue("id"))
	}
	return nil, http.StatusNoContent, snap.destroy(r.Context())
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	of, name := r.URL.Query().Get("sandboxID"), r.URL.Query().Get("name")
	s.page(w, r, func(one record) bool {
		return one.Snapshot && (of == "" || one.Of == of) && (name == "" || slices.Contains(one.Names, name))
	}, func(b *sandbox) any { return b.toldAsSnapshot() })
}

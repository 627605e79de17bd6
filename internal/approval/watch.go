package approval

import (
	"context"
	"path/filepath"
	"time"

	"paddock/internal/fault"
)

// grain is how exactly a file system knows when a folder was changed.
const grain = 3 * time.Second

// Watch tells of each approval that is decided, here or in another process, until ctx
// ends; first of those that were decided lately and not used. owner is whose; empty:
// everybody's. told is called from one goroutine.
func (s *Store) Watch(ctx context.Context, owner string, told func(Approval)) {
	w := watch{store: s, seen: map[string]map[string]bool{}, settled: map[string]time.Time{}}
	for {
		changed := s.change()
		for _, a := range w.look(owner) {
			if ctx.Err() == nil {
				told(a)
			}
		}
		timer := time.NewTimer(seldom)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// watch is what one of them knows.
type watch struct {
	store   *Store
	seen    map[string]map[string]bool // by folder and id: it has been told
	settled map[string]time.Time       // by folder: when it was changed last, where that is long enough ago
}

// look gives what is new.
func (w *watch) look(owner string) (news []Approval) {
	folders := []string{ownerFolder(owner)}
	if owner == "" {
		var err error
		if folders, err = w.store.folders(); err != nil {
			w.store.options.Log.Warn("the approvals cannot be listed", "cause", fault.CauseOf(err))
		}
	}
	for _, folder := range folders {
		news = append(news, w.lookInto(folder)...)
	}
	return news
}

// lookInto gives what is new of one owner. A folder in which nothing was changed is not
// read.
func (w *watch) lookInto(folder string) (news []Approval) {
	info, err := w.store.options.Files.Stat(filepath.Join(w.store.dir, folder))
	if err != nil || info.ModTime().Equal(w.settled[folder]) {
		return nil
	}
	now := time.Now()
	all, err := w.store.listed(folder)
	if err != nil {
		w.store.options.Log.Warn("the approvals cannot be listed", "cause", fault.CauseOf(err))
		return nil
	}
	if info.ModTime().Before(now.Add(-grain)) {
		w.settled[folder] = info.ModTime()
	}
	seen := map[string]bool{}
	for _, a := range all {
		if a.State != Granted && (a.State != Denied || w.store.now().Sub(a.Decided) >= w.store.options.TTL) {
			continue
		}
		if seen[a.ID] = true; !w.seen[folder][a.ID] {
			news = append(news, a)
		}
	}
	w.seen[folder] = seen
	return news
}

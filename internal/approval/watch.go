package approval

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"paddock/internal/fault"
)

// Watch tells of each approval that is decided, here or in another process, until ctx
// ends; first of those that were decided lately and not used. owner is whose; empty:
// everybody's. told is called from one goroutine.
func (s *Store) Watch(ctx context.Context, owner string, told func(Approval)) {
	folder := ""
	if owner != "" {
		folder = ownerFolder(owner)
	}
	seen := map[string]bool{} // documents of decided approvals that were told
	s.watch(ctx, folder, func(document string) {
		n, ok := parseName(document)
		if !ok {
			return
		}
		a, _, err := s.read(ctx, n)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			s.warn(n, err)
		}
		if err != nil || a.State != Granted && (a.State != Denied || s.now().Sub(a.Decided) >= s.options.TTL) {
			delete(seen, document)
			return
		}
		if !seen[document] && ctx.Err() == nil {
			seen[document] = true
			told(a)
		}
	})
}

// watch has told called for each approval that may have changed, until ctx ends. What cannot
// be watched now is tried again.
func (s *Store) watch(ctx context.Context, folder string, told func(document string)) {
	for ctx.Err() == nil {
		err := s.table.Watch(ctx, folder, told)
		if ctx.Err() != nil {
			return
		}
		s.options.Log.Warn("the approvals cannot be listed", "cause", fault.CauseOf(err))
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"paddock/internal/blob"
	"paddock/internal/history"
)

// Collect removes the contents of an owner's store that no checkpoint names below dir,
// which has a folder for each of the owner's sessions. It gives how many it removed,
// and their bytes, also after an error.
func Collect(ctx context.Context, store *blob.Store, dir string, files blob.Files) (n int, bytes int64, err error) {
	n, bytes, err = store.Collect(ctx, func(keep func(blob.Digest)) error {
		// What was removed must not come back without its blobs.
		if err := history.SyncAll(dir, files); err != nil {
			return err
		}
		return mark(store, dir, files, keep)
	})
	if err != nil {
		return n, bytes, fmt.Errorf("collecting what is no longer needed: %w", err)
	}
	return n, bytes, nil
}

// mark names every blob that the checkpoints below dir need: what their
// manifests name, and the files in the lists of these.
func mark(store *blob.Store, dir string, files blob.Files, keep func(blob.Digest)) error {
	seen := map[blob.Digest]bool{}
	return history.Each(dir, files, func(m *history.Manifest, newest bool) error {
		for ref := range m.Refs() {
			keep(ref.Digest)
		}
		for _, ref := range m.Trees {
			if seen[ref.Digest] {
				continue
			}
			seen[ref.Digest] = true
			if err := markFiles(store, ref, newest, keep); err != nil {
				return err
			}
		}
		return nil
	})
}

func markFiles(store *blob.Store, ref blob.Ref, newest bool, keep func(blob.Digest)) error {
	list, err := ReadListing(store, ref)
	if !newest && (errors.Is(err, blob.ErrDamaged) || errors.Is(err, blob.ErrMissing) || errors.Is(err, history.ErrDamaged)) {
		return nil // nobody can find its files any more
	}
	if err != nil {
		return err
	}
	for ref := range list.Refs() {
		keep(ref.Digest)
	}
	return nil
}

package blob

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"paddock/internal/fault"
)

// Collect removes every content that live does not keep, and what batches left
// that did not come to an end; it gives the number of contents and the bytes
// that they took. It waits until no batch is open, at most until ctx ends or
// for the store's patience: then it is a fault.Conflict. While live runs no
// batch can begin, so what live does not find nobody is about to refer to; but
// what referred to a content and was removed must be gone durably (SyncDir), or
// a power cut brings it back without the content. An error of live removes
// nothing. What cannot be removed stays for another time.
func (s *Store) Collect(ctx context.Context, live func(keep func(Digest)) error) (n int, bytes int64, err error) {
	lock := s.fileLock()
	wait, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	ok, err := lock.TryLockContext(wait, lockDelay)
	switch {
	case ok:
		defer func() { err = errors.Join(err, Explain(lock.Close(), "unlocking the stored state")) }()
	case ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, 0, fault.New(fault.Conflict, "state is being stored, and nothing can be tidied up meanwhile").WithHint("try again later").WithCause(err)
	default:
		return 0, 0, Explain(err, "locking the stored state")
	}
	kept := map[Digest]bool{}
	if err := live(func(d Digest) { kept[d] = true }); err != nil {
		return 0, 0, err
	}
	var failed error
	left, err := s.eachBlob(func(d Digest, size int64) error {
		if kept[d] {
			return ctx.Err()
		}
		switch err := s.files.Remove(s.path(d)); {
		case err == nil:
			n++
			bytes += onDisk(size)
		case !errors.Is(err, fs.ErrNotExist):
			failed = errors.Join(failed, err)
		}
		return ctx.Err()
	})
	err = errors.Join(failed, err, s.sweep())
	s.collected(left-bytes, err == nil)
	if ctx.Err() != nil {
		return n, bytes, context.Cause(ctx)
	}
	return n, bytes, Explain(err, "tidying up the stored state")
}

// eachBlob calls visit for every content, with the size of its file, and gives
// what all of them take on disk. What vanishes meanwhile is left out.
func (s *Store) eachBlob(visit func(Digest, int64) error) (bytes int64, err error) {
	shards, err := s.files.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	for _, shard := range shards {
		if !shard.IsDir() || len(shard.Name()) != 2 {
			continue
		}
		entries, err := s.files.ReadDir(filepath.Join(s.dir, shard.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return bytes, err
		}
		for _, e := range entries {
			var d Digest
			if d.UnmarshalText([]byte(shard.Name()+e.Name())) != nil {
				continue // somebody else's
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return bytes, err
			}
			bytes += onDisk(info.Size())
			if err := visit(d, info.Size()); err != nil {
				return bytes, err
			}
		}
	}
	return bytes, nil
}

// sweep removes what was being written. Nobody writes now.
func (s *Store) sweep() error {
	dir := filepath.Join(s.dir, newFolder)
	entries, err := s.files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if rmErr := s.files.Remove(filepath.Join(dir, e.Name())); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

package blob

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/fault"
)

// Collect removes every content that live does not keep, and what batches left
// that did not come to an end; it gives the number of contents and the bytes
// that they took. It waits until no batch is open, at most until ctx ends or
// for the store's timeout: then it is a fault.Conflict. While live runs no
// batch can begin, so what live does not find nobody is about to refer to; but
// what referred to a content and was removed must be gone durably (SyncDir), or
// a power cut brings it back without the content. An error of live removes
// nothing. What cannot be removed stays for another time, and so does what is not
// reached in half of the store's timeout, as others may be waiting: [Store.Unfinished]
// tells of it.
func (s *Store) Collect(ctx context.Context, live func(keep func(Digest)) error) (n int, bytes int64, err error) {
	held, err := s.takeLock(ctx, 0)
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, Explain(held.Close(), "unlocking the stored state")) }()
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
	until := time.Now().Add(s.lockTimeout / 2)
	left, err := s.eachBlob(rand.IntN(len(s.linked)), func(d Digest, size int64) error {
		switch {
		case time.Now().After(until):
			return errEnough
		case kept[d]:
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
	enough := errors.Is(err, errEnough)
	s.unfinished.Store(enough)
	if enough {
		err = nil
	}
	err = errors.Join(failed, err, s.sweep())
	s.collected(left-bytes, err == nil && !enough)
	if ctx.Err() != nil {
		return n, bytes, context.Cause(ctx)
	}
	return n, bytes, Explain(err, "tidying up the stored state")
}

// Unfinished tells whether the last [Store.Collect] left some for another time, as it
// had taken long.
func (s *Store) Unfinished() bool { return s.unfinished.Load() }

var errEnough = errors.New("blob: others wait")

// eachBlob calls visit for every content, with the size of its file, and gives
// what all of them take on disk. What vanishes meanwhile is left out. It begins with
// the folder at that place, as one that does not come to the end begins elsewhere the
// next time.
func (s *Store) eachBlob(first int, visit func(Digest, int64) error) (bytes int64, err error) {
	shards, err := s.files.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	first %= max(len(shards), 1)
	for _, shard := range slices.Concat(shards[first:], shards[:first]) {
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

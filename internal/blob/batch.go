package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/lock"
)

const (
	// maxOpen is how many written files wait for their sync with a descriptor.
	maxOpen = 64
	// syncers is how many files are synced at once: the disk makes one flush
	// of what comes together.
	syncers = 8
	// A content of at most smallBytes, as its file would be, waits in memory for the batch's
	// commit, as long as all of them have at most heldBytes: the commit writes them with
	// what refers to them, and needs no sync for each.
	smallBytes = 64 << 10
	heldBytes  = 256 << 10
)

// Batch is a set of contents that become durable together. Until it is closed
// nothing is collected from the store, so who puts contents, syncs them, and
// then writes durably what refers to them, closes it last. It is safe for
// concurrent use.
type Batch struct {
	store *Store
	lock  *lock.Lock

	mu      sync.Mutex
	items   map[Digest]*item
	temps   map[string]bool // files in newFolder
	open    []*item         // written and not synced
	waiting []*item         // synced or open, without their own names
	small   []*item         // held in memory
	held    int             // bytes of them
	shards  [256]bool       // where names have to be made durable
	arrived func()          // its commit is not waited for any more; works twice
	broken  error           // what made the batch useless
	closed  bool
}

// item is one content of a batch.
type item struct {
	digest  Digest
	ref     Ref
	temp    string // empty when the content has its own name
	file    File   // until it is synced
	data    []byte // its file's content, where it has none yet
	replace bool   // what has its name is damaged
}

// Begin starts a batch. It waits for a collection to end, at most until ctx
// does or the store's timeout: then it is a fault.Unavailable.
func (s *Store) Begin(ctx context.Context) (*Batch, error) {
	held, err := s.takeLock(ctx, lock.Shared)
	switch {
	case err == nil:
		b := &Batch{store: s, lock: held, items: map[Digest]*item{}, temps: map[string]bool{}, arrived: func() {}}
		if c, ok := s.files.(Committer); ok {
			b.arrived = c.Expect()
		}
		return b, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fault.New(fault.Unavailable, "the stored state is being tidied up").WithHint("try again in a moment").WithCause(err)
	}
	return nil, Explain(err, "locking the stored state")
}

// takeLock takes the store's lock, which is of the operating system whatever
// Options.Files is, so that it dies with who holds it. It waits for the store's timeout.
func (s *Store) takeLock(ctx context.Context, mode lock.Mode) (*lock.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, s.lockTimeout)
	defer cancel()
	return lock.Take(wait, filepath.Join(s.dir, lockFile), mode)
}

// Put keeps a content, compressed if that helps. One that the store has already
// is read and compared, and written again only if it is damaged.
func (b *Batch) Put(r io.Reader) (Ref, error) {
	w := b.Writer(Plain)
	if _, err := w.ReadFrom(r); err != nil {
		w.Discard()
		return Ref{}, err
	}
	return w.Close()
}

// temp makes a file for a content that has no name yet.
func (b *Batch) temp() (File, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usableLocked(); err != nil {
		return nil, "", err
	}
	name := filepath.Join(b.store.dir, newFolder, rand.Text())
	f, err := b.store.files.Create(name)
	if err != nil {
		return nil, "", Explain(err, "keeping state")
	}
	b.temps[name] = true
	return f, name, nil
}

func (b *Batch) usableLocked() error {
	if b.closed {
		return fault.New(fault.Internal, "paddock made a mistake").WithCause(errors.New("blob: the batch is closed"))
	}
	return b.broken
}

// drop takes a temporary file away.
func (b *Batch) drop(f File, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(f, name)
}

func (b *Batch) dropLocked(f File, name string) {
	if f != nil {
		_ = f.Close() // nothing of it is wanted
	}
	if err := b.store.files.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
		delete(b.temps, name)
	}
}

// holds reports whether a content whose file would have so many bytes can wait in memory.
func (b *Batch) holds(bytes int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes <= smallBytes && b.held+bytes <= heldBytes
}

// find tells whether a content need not be written: this batch has it, or the
// store has it whole. replace means that the store's is damaged.
func (b *Batch) find(d Digest, size int64) (ref Ref, found, replace bool) {
	b.mu.Lock()
	it := b.items[d]
	b.mu.Unlock()
	if it != nil {
		return it.ref, true, false
	}
	stored, err := b.store.verify(d, size)
	switch {
	case errors.Is(err, ErrMissing):
		return Ref{}, false, false
	case err != nil:
		return Ref{}, false, true
	}
	ref = Ref{Digest: d, Size: size, Stored: stored}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Its name may be another batch's, which has not synced it or never will.
	b.shards[d[0]] = true
	b.items[d] = &item{digest: d, ref: ref}
	return ref, true, false
}

// add takes a content that was written into a temporary file.
func (b *Batch) add(it *item) (Ref, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usableLocked(); err != nil {
		b.dropLocked(it.file, it.temp)
		return Ref{}, err
	}
	if first := b.items[it.digest]; first != nil {
		b.dropLocked(it.file, it.temp)
		return first.ref, nil
	}
	b.items[it.digest] = it
	if it.data != nil {
		b.small = append(b.small, it)
		b.held += len(it.data)
		return it.ref, nil
	}
	b.open = append(b.open, it)
	b.waiting = append(b.waiting, it)
	b.shards[it.digest[0]] = true
	if len(b.open) >= maxOpen {
		return it.ref, b.syncOpenLocked()
	}
	return it.ref, nil
}

// syncOpenLocked syncs what was written. A file whose sync failed is never
// synced again: that would say nothing.
func (b *Batch) syncOpenLocked() error {
	err := each(b.open, func(it *item) error {
		err := errors.Join(it.file.Sync(), it.file.Close())
		it.file = nil
		return err
	})
	b.open = b.open[:0]
	if err != nil {
		b.broken = Explain(err, "keeping state")
	}
	return b.broken
}

// Sync makes durable whatever was put: only now may something refer to it. It
// may be called more than once. After an error the batch is of no use any more,
// and of what was put nothing can be relied on.
func (b *Batch) Sync(ctx context.Context) error { return b.commit(ctx) }

// Commit is Sync together with what is written then, at last a file that refers to what was
// put: it is there only if all of that is. Its error is one of [Commit]. Where the contents are small, the disk is
// waited for once.
func (b *Batch) Commit(ctx context.Context, writes ...Write) error { return b.commit(ctx, writes...) }

func (b *Batch) commit(ctx context.Context, writes ...Write) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usableLocked(); err != nil {
		return err
	}
	grown, err := b.syncLocked(ctx)
	if err == nil {
		var more int64
		if writes, more, err = b.smallLocked(writes); err == nil && len(writes) > 0 {
			b.arrived()
			err = Commit(b.store.files, writes)
		}
		if err == nil {
			grown += more
			b.small, b.held = nil, 0
		}
	}
	if err != nil {
		b.broken = Explain(err, "keeping state")
	}
	b.store.grew(grown)
	return b.broken
}

// smallLocked gives what is to be written of the contents that are held in memory, and
// then these writes. grown is by how much the store grows with that.
func (b *Batch) smallLocked(then []Write) (writes []Write, grown int64, err error) {
	for _, it := range b.small {
		name := b.store.path(it.digest)
		info, err := b.store.files.Stat(name)
		switch {
		case err == nil: // it is damaged, or another batch's
			grown -= onDisk(info.Size())
		case !errors.Is(err, fs.ErrNotExist):
			return nil, 0, err
		}
		grown += onDisk(it.ref.Stored)
		writes = append(writes, Write{Name: name, Data: it.data, Temp: filepath.Join(b.store.dir, newFolder, rand.Text()), Deferred: true})
	}
	return append(writes, then...), grown, nil
}

func (b *Batch) syncLocked(ctx context.Context) (grown int64, err error) {
	if err := b.syncOpenLocked(); err != nil {
		return 0, err
	}
	fresh, err := b.makeShardsLocked()
	if err != nil {
		return 0, err
	}
	for len(b.waiting) > 0 {
		if ctx.Err() != nil {
			return grown, context.Cause(ctx)
		}
		n, err := b.placeLocked(b.waiting[0])
		grown += n
		if err != nil {
			return grown, err
		}
		b.waiting = b.waiting[1:]
	}
	var dirs []string
	for k, touched := range b.shards {
		if touched {
			dirs = append(dirs, b.store.shard(byte(k)))
		}
	}
	if len(fresh) > 0 {
		dirs = append(dirs, b.store.dir)
	}
	if err := each(dirs, b.store.files.SyncDir); err != nil {
		return grown, err
	}
	b.store.linkedAre(fresh)
	b.shards = [256]bool{}
	return grown, nil
}

// makeShardsLocked makes the folders that the batch needs, and gives those whose
// names this process has not made durable yet: another one may have made them
// without syncing them.
func (b *Batch) makeShardsLocked() (fresh []byte, err error) {
	s := b.store
	s.mu.Lock()
	for k, touched := range b.shards {
		if touched && !s.linked[k] {
			fresh = append(fresh, byte(k))
		}
	}
	s.mu.Unlock()
	for _, k := range fresh {
		if err := s.files.Mkdir(s.shard(k)); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return fresh, nil
}

// linkedAre notes that the names of these folders are durable.
func (s *Store) linkedAre(fresh []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range fresh {
		s.linked[k] = true
	}
}

// placeLocked gives a synced file its name, and tells by how much the store
// grew. Whoever has given it to the same content meanwhile did as well.
func (b *Batch) placeLocked(it *item) (grown int64, err error) {
	files, name := b.store.files, b.store.path(it.digest)
	info, err := files.Stat(name)
	switch {
	case err == nil && !it.replace:
		b.dropLocked(nil, it.temp)
		it.temp = ""
		return 0, nil
	case err == nil:
		grown = -onDisk(info.Size())
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := files.Rename(it.temp, name); err != nil {
		return 0, err
	}
	delete(b.temps, it.temp)
	it.temp = ""
	return grown + onDisk(it.ref.Stored), nil
}

// Close removes what was not synced and lets go of the store. It works twice.
func (b *Batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.arrived()
	for _, it := range b.open {
		_ = it.file.Close() // it is removed
	}
	for name := range b.temps {
		_ = b.store.files.Remove(name) // what stays is collected
	}
	return Explain(b.lock.Close(), "unlocking the stored state")
}

// each calls do for every item, some at once, and gives all errors.
func each[T any](items []T, do func(T) error) error {
	if len(items) == 1 {
		return do(items[0])
	}
	var (
		group sync.WaitGroup
		turns = make(chan struct{}, syncers)
		errs  = make([]error, len(items))
	)
	for k, it := range items {
		turns <- struct{}{}
		group.Go(func() {
			errs[k] = do(it)
			<-turns
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

package session

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// An exported session is a tar archive in zstd: archiveHead, then every content
// that it names as blobFolder/<digest>, then archiveEnd, without which it is not
// all there. Digests say whether a content is what it was.
const (
	archiveHead = "paddock-session.json"
	archiveEnd  = "paddock-end.json"
	blobFolder  = "blobs/"

	archiveFormat = 1
	maxHead       = 8 << 20
)

// archive is what archiveHead holds.
type archive struct {
	Format     int              `json:"format"`
	ExportedAt time.Time        `json:"exported_at"`
	Isolation  string           `json:"isolation"`
	Settings   Settings         `json:"settings"`
	Checkpoint history.Manifest `json:"checkpoint"`
}

// ending is what archiveEnd holds.
type ending struct {
	Blobs int `json:"blobs"`
}

// Export writes a session as one archive that another paddock can import, also
// on another system: its files and variables as they are now, without its
// earlier checkpoints. It waits for its turn, but not with it for w.
func (m *Manager) Export(ctx context.Context, owner Owner, id ID, w io.Writer) (err error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return err
	}
	defer done()
	if s.passing() {
		return errPassing
	}
	defer func() { m.told(ctx, Exporting, s, err) }()
	// While it is held, nothing that the archive needs is collected.
	batch, err := s.kept.blobs.Begin(ctx)
	if err != nil {
		return err
	}
	defer batch.Close()
	a, err := s.portable(ctx, batch)
	if err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	refs, err := s.contents(&a.Checkpoint)
	if err == nil {
		err = s.writeArchive(ctx, w, a, refs)
	}
	if err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	return nil
}

// portable gives the session's state in a form that depends on nothing here.
func (s *session) portable(ctx context.Context, batch *blob.Batch) (archive, error) {
	t, err := s.join(ctx, "", nil)
	if err != nil {
		return archive{}, err
	}
	defer s.leave(t)
	s.bury(t)
	if s.lastKeep(); s.backend == nil {
		return archive{}, s.backendErr
	}
	s.mu.Lock()
	a := archive{Format: archiveFormat, ExportedAt: time.Now().UTC(), Isolation: s.record.Isolation, Settings: s.record.Settings}
	s.mu.Unlock()
	s.keeping.Lock()
	a.Checkpoint = s.kept.head.Clone()
	failed := s.kept.failed
	s.keeping.Unlock()
	if failed != nil {
		return archive{}, failed
	}
	for runtime, in := range a.Checkpoint.Interpreters {
		if in, err = s.carry(t, runtime, in, batch); err != nil {
			return archive{}, err
		}
		a.Checkpoint.Interpreters[runtime] = in
	}
	a.Checkpoint.Record, a.Checkpoint.Owner = nil, ""
	return a, batch.Sync(ctx)
}

// carry writes an interpreter's whole state.
func (s *session) carry(t *turn, runtime string, was history.Interpreter, batch *blob.Batch) (history.Interpreter, error) {
	live, err := s.interpreter(t, sandbox.Runtime{Name: runtime})
	if err != nil {
		return was, err
	}
	if why, lost := s.lost[runtime]; lost {
		return was, fault.New(fault.Unsupported, "the %s interpreter cannot be exported: %s", runtime, why).WithHint("run something in it first: then what it holds is exported")
	}
	snapshotter, ok := live.(sandbox.Snapshotter)
	if !ok {
		return was, fault.New(fault.Unsupported, "the isolation %q cannot give its interpreters away", s.backendName())
	}
	w := batch.Writer(blob.Packed)
	defer w.Discard()
	s.keeping.Lock()
	s.kept.apart[runtime] = true
	s.keeping.Unlock()
	got, err := guard("exporting", func() (sandbox.Snapshot, error) {
		return snapshotter.Snapshot(t.ctx, w, sandbox.SnapshotOptions{Portable: true})
	})
	if err != nil {
		return was, err
	}
	ref, err := w.Close()
	was.State, was.Layers, was.Mark, was.Anew = got.State, []blob.Ref{ref}, "", true
	return was, err
}

// contents gives every blob that a checkpoint needs, once.
func (s *session) contents(c *history.Manifest) ([]blob.Ref, error) {
	all := map[blob.Digest]blob.Ref{}
	for ref := range c.Refs() {
		all[ref.Digest] = ref
	}
	for _, ref := range c.Trees {
		list, err := s.listing(ref)
		if err != nil {
			return nil, err
		}
		for ref := range list.Refs() {
			all[ref.Digest] = ref
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b blob.Ref) int { return strings.Compare(a.Digest.String(), b.Digest.String()) }), nil
}

func (s *session) writeArchive(ctx context.Context, w io.Writer, a archive, refs []blob.Ref) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	out := tar.NewWriter(z)
	if err := writeJSON(out, archiveHead, a.ExportedAt, a); err != nil {
		return err
	}
	for _, ref := range refs {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.writeBlob(out, ref, a.ExportedAt); err != nil {
			return err
		}
	}
	err = writeJSON(out, archiveEnd, a.ExportedAt, ending{Blobs: len(refs)})
	return errors.Join(err, out.Close(), z.Close())
}

func writeJSON(out *tar.Writer, name string, at time.Time, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: at}); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func (s *session) writeBlob(out *tar.Writer, ref blob.Ref, at time.Time) error {
	r, err := s.kept.blobs.Open(ref)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := out.WriteHeader(&tar.Header{Name: blobFolder + ref.Digest.String(), Mode: 0o600, Size: ref.Size, ModTime: at}); err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return err
}

// errArchive is for what is no archive of a session, or not all of one.
func errArchive(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "this is not a whole session archive: "+format, args...).WithHint("export the session again, and copy the file whole")
}

// Import makes a session of an archive; id "" makes a new name. What cannot be
// gone on with here, such as variables of another build of an interpreter, is a
// fault.Unsupported, and then no session is made.
func (m *Manager) Import(ctx context.Context, owner Owner, id ID, r io.Reader) (info Info, notice string, err error) {
	if id == "" {
		id = ID(mint("s-"))
	}
	if err := id.check(); err != nil {
		return Info{}, "", err
	}
	store, err := m.blobs(owner)
	if err != nil {
		return Info{}, "", err
	}
	batch, err := store.Begin(ctx)
	if err != nil {
		return Info{}, "", err
	}
	defer batch.Close()
	a, err := m.readArchive(ctx, owner, store, batch, r)
	if err != nil {
		return Info{}, "", err
	}
	s, err := m.adopt(ctx, key{owner, id}, a)
	if err != nil {
		return Info{}, "", fmt.Errorf("importing the session: %w", err)
	}
	m.told(ctx, Importing, s, nil)
	info, err = m.Info(owner, s.id)
	return info, notice, err
}

// adopt makes the session of an archive whose contents are in the store.
func (m *Manager) adopt(ctx context.Context, k key, a archive) (*session, error) {
	set := a.Settings
	set.Isolation = a.Isolation
	if set.MemoryBytes > m.config.MemoryBytes {
		set.MemoryBytes = 0 // as much as there is here
	}
	b, err := m.checkSettings(ctx, set)
	if err != nil {
		return nil, err
	}
	s, err := m.make(k, b, nil, set, "", func(d *draft) error {
		d.next.Cause = causeImport
		return d.begin(&a.Checkpoint)
	})
	if err != nil {
		return nil, err
	}
	if err := s.tryAll(ctx, a.Checkpoint.Interpreters); err != nil {
		if m.destroy(s, errDestroyed, nil) {
			<-s.closed
		}
		return nil, err
	}
	return s, nil
}

// tryAll starts every interpreter of a new session, to see that it can be gone
// on with.
func (s *session) tryAll(ctx context.Context, all map[string]history.Interpreter) error {
	t := s.borrow(ctx)
	if t == nil {
		return nil // it ends already
	}
	defer s.leave(t)
	for runtime := range all {
		if _, err := s.interpreter(t, sandbox.Runtime{Name: runtime}); err != nil {
			return err
		}
		if why, lost := s.lost[runtime]; lost {
			return fault.New(fault.Unsupported, "the variables of the %s interpreter cannot be taken over here: %s", runtime, why).
				WithHint("import it with the paddock that exported it, or one with the same interpreters (paddock version)")
		}
	}
	return nil
}

// readArchive reads an archive whole and puts what it holds into the store,
// durably.
func (m *Manager) readArchive(ctx context.Context, owner Owner, store *blob.Store, batch *blob.Batch, r io.Reader) (archive, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return archive{}, err
	}
	defer z.Close()
	in := tar.NewReader(z)
	var a archive
	if err := readJSON(in, archiveHead, &a); err != nil {
		return a, err
	}
	if a.Format != archiveFormat {
		return a, fault.New(fault.Unsupported, "the archive has the format %d, and this paddock knows %d", a.Format, archiveFormat).WithHint("update paddock")
	}
	n, err := m.readBlobs(ctx, owner, batch, in)
	if err != nil {
		return a, err
	}
	var end ending
	if err := json.NewDecoder(in).Decode(&end); err != nil || end.Blobs != n {
		return a, errArchive("its end does not fit").WithCause(err)
	}
	if _, err := io.Copy(io.Discard, z); err != nil { // the checksum comes last
		return a, errArchive("its end is missing").WithCause(err)
	}
	if err := batch.Sync(ctx); err != nil {
		return a, err
	}
	return a, m.checkArchive(&a, store)
}

func readJSON(in *tar.Reader, name string, v any) error {
	h, err := in.Next()
	if err != nil || h.Name != name {
		return errArchive("it does not begin with %s", name).WithCause(err)
	}
	if err := json.NewDecoder(io.LimitReader(in, maxHead)).Decode(v); err != nil {
		return errArchive("%s cannot be read", name).WithCause(err)
	}
	return nil
}

// readBlobs puts contents into the store until archiveEnd comes.
func (m *Manager) readBlobs(ctx context.Context, owner Owner, batch *blob.Batch, in *tar.Reader) (n int, err error) {
	sum := int64(0)
	for {
		if err := context.Cause(ctx); err != nil {
			return n, err
		}
		h, err := in.Next()
		if err != nil {
			return n, errArchive("it ends too early").WithCause(err)
		}
		if h.Name == archiveEnd {
			return n, nil
		}
		digest, ok := strings.CutPrefix(h.Name, blobFolder)
		if !ok || h.Typeflag != tar.TypeReg || h.Size < 0 {
			return n, errArchive("it holds %.100q", h.Name)
		}
		if sum += h.Size; sum > m.config.OwnerDiskBytes {
			return n, fault.New(fault.Exhausted, "the session takes more than the %d MiB that yours may take together", m.config.OwnerDiskBytes>>20).
				WithHint("who runs the server can raise limits.max_disk_per_client_mb")
		}
		if err := m.checkDisk(owner, sum); err != nil {
			return n, err
		}
		ref, err := batch.Put(in)
		switch {
		case err != nil && fault.KindOf(err) != fault.Internal:
			return n, err
		case err != nil:
			return n, errArchive("it cannot be read to its end").WithCause(err)
		case ref.Digest.String() != digest:
			return n, errArchive("the content %.20s… is not what it was", digest)
		}
		n++
	}
}

// checkArchive sees whether all that the checkpoint needs is there and fits.
func (m *Manager) checkArchive(a *archive, store *blob.Store) error {
	c := &a.Checkpoint
	if err := store.Check(slices.Collect(c.Refs())); err != nil {
		return errArchive("not all of its contents are there").WithCause(err)
	}
	for name, ref := range c.Trees {
		list, err := readListing(store, ref)
		if err != nil {
			return errArchive("its list of files cannot be read").WithCause(err)
		}
		if err := store.Check(slices.Collect(list.Refs())); err != nil {
			return errArchive("not all of its files are there").WithCause(err)
		}
		if limit := m.config.DiskBytes; name == workspaceFolder && list.Bytes() > limit {
			return fault.New(fault.Exhausted, "the session's files take %d MiB, and %d are allowed", list.Bytes()>>20, limit>>20).
				WithHint("who runs the server can raise sessions.max_disk_mb")
		}
	}
	return nil
}

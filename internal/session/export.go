package session

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// Export writes a session as one archive that another paddock can import, also
// on another system: its files and variables as they are now, without its
// earlier checkpoints. It waits for its turn, and puts the archive together on
// the state folder's disk: however long w takes, nobody waits for it.
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
	file, err := m.scratch()
	if err == nil {
		defer file.Close()
		err = s.pack(ctx, file)
	}
	if err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	done() // the archive does not need it
	if _, err := io.Copy(w, &bounded{ctx, file.reader(), math.MaxInt64}); err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	return nil
}

// pack writes the session's archive. Meanwhile nothing is collected.
func (s *session) pack(ctx context.Context, to io.Writer) error {
	p := &parcel{s: s, ctx: ctx, layers: map[blob.Digest]*scratch{}}
	defer p.close()
	if err := p.take(); err != nil {
		return err
	}
	return p.write(to)
}

// parcel is what an archive is made of.
type parcel struct {
	s      *session
	ctx    context.Context
	head   archive
	batch  *blob.Batch              // while it is open, nothing that head names is collected
	layers map[blob.Digest]*scratch // what is in no store
	opened []*scratch               // all that have to be closed
	named  map[blob.Digest]blob.Ref // contents of the store, but for lists
	lists  []blob.Ref
}

func (p *parcel) close() {
	for _, f := range p.opened {
		_ = f.Close() // nobody needs it any more
	}
	if p.batch != nil {
		_ = p.batch.Close() // nothing was put
	}
}

// take takes the session's state up in a form that depends on nothing here. It
// is the session's turn as long as that lasts.
func (p *parcel) take() error {
	s := p.s
	t, err := s.join(p.ctx, "", nil)
	if err != nil {
		return err
	}
	defer s.leave(t)
	if err := s.lastKeep(t.ctx); err != nil {
		return err
	}
	if s.backend == nil {
		return s.backendErr
	}
	if p.batch, err = s.kept.blobs.Begin(t.ctx); err != nil {
		return err
	}
	s.mu.Lock()
	p.head = archive{Format: archiveFormat, ExportedAt: time.Now().UTC(), Isolation: s.record.Isolation, Settings: s.record.Settings}
	s.mu.Unlock()
	s.keeping.Lock()
	c := s.kept.head.Clone()
	s.keeping.Unlock()
	for runtime, in := range c.Interpreters {
		if in, err = p.carry(t, runtime, in); err != nil {
			return err
		}
		c.Interpreters[runtime] = in
	}
	// What only says how it came to this.
	c.Record, c.Owner, c.Variables, c.Files = nil, "", nil, nil
	p.head.Checkpoint = c
	return nil
}

// carry takes an interpreter's whole state up.
func (p *parcel) carry(t *turn, runtime string, was history.Interpreter) (history.Interpreter, error) {
	s := p.s
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
	file, err := s.manager.scratch()
	if err != nil {
		return was, err
	}
	p.opened = append(p.opened, file)
	s.keeping.Lock()
	s.kept.apart[runtime] = true
	s.keeping.Unlock()
	hash := sha256.New()
	got, err := guard("exporting", func() (sandbox.Snapshot, error) {
		return snapshotter.Snapshot(t.ctx, io.MultiWriter(file, hash), sandbox.SnapshotOptions{Portable: true})
	})
	if err != nil {
		return was, err
	}
	ref := blob.Ref{Digest: blob.Digest(hash.Sum(nil)), Size: file.size, Stored: file.size}
	p.layers[ref.Digest] = file
	was.State, was.Layers, was.Mark, was.Anew = got.State, []blob.Ref{ref}, "", true
	return was, nil
}

// find finds out what the archive has to hold besides layers.
func (p *parcel) find() error {
	p.named = map[blob.Digest]blob.Ref{}
	for _, ref := range p.head.Checkpoint.Trees {
		list, err := p.s.listing(ref)
		if err != nil {
			return err
		}
		if !slices.Contains(p.lists, ref) {
			p.lists = append(p.lists, ref)
		}
		for ref := range list.Refs() {
			p.named[ref.Digest] = ref
		}
	}
	for _, ref := range p.lists {
		delete(p.named, ref.Digest)
	}
	for digest := range p.layers {
		delete(p.named, digest)
	}
	return nil
}

func (p *parcel) write(to io.Writer) error {
	if err := p.find(); err != nil {
		return err
	}
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(archiveWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	out := tar.NewWriter(z)
	if err := p.writeJSON(out, archiveHead, p.head); err != nil {
		return err
	}
	for _, ref := range slices.Concat(p.lists, slices.SortedFunc(maps.Values(p.named), byDigest)) {
		if err := p.writeBlob(out, ref); err != nil {
			return err
		}
	}
	for digest, file := range p.layers {
		if err := p.writeContent(out, digest, file.size, file.reader()); err != nil {
			return err
		}
	}
	err = p.writeJSON(out, archiveEnd, ending{Blobs: len(p.lists) + len(p.named) + len(p.layers)})
	return errors.Join(err, out.Close(), z.Close())
}

func byDigest(a, b blob.Ref) int { return strings.Compare(a.Digest.String(), b.Digest.String()) }

func (p *parcel) writeJSON(out *tar.Writer, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > maxHead {
		return fault.New(fault.Unsupported, "the interpreters say too much of themselves for an archive").WithHint("delete variables with long names, and run something")
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: p.head.ExportedAt}); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func (p *parcel) writeBlob(out *tar.Writer, ref blob.Ref) error {
	r, err := p.s.kept.blobs.Open(ref)
	if err != nil {
		return err
	}
	defer r.Close()
	return p.writeContent(out, ref.Digest, ref.Size, r)
}

func (p *parcel) writeContent(out *tar.Writer, digest blob.Digest, size int64, from io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: blobFolder + digest.String(), Mode: 0o600, Size: size, ModTime: p.head.ExportedAt}); err != nil {
		return err
	}
	_, err := io.Copy(out, &bounded{p.ctx, from, math.MaxInt64})
	return err
}

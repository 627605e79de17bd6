package session

import (
	"context"
	"fmt"
	"io"
	"time"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/sessionfile"
	"paddock/internal/workspace"
)

// scratchFolder is where archives lie while they are written and read, in the
// state folder.
const scratchFolder = "scratch"

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
	if s.isEphemeral() {
		return errEphemeral
	}
	defer func() { m.recordAction(ctx, Exporting, s, err) }()
	file, err := m.scratch.File()
	if err == nil {
		defer file.Close()
		err = s.pack(ctx, file)
	}
	if err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	done() // the archive does not need it
	if err := file.Copy(ctx, w); err != nil {
		return fmt.Errorf("exporting the session: %w", err)
	}
	return nil
}

// pack writes the session's archive. Meanwhile nothing is collected.
func (s *session) pack(ctx context.Context, to io.Writer) error {
	p := &parcel{s: s}
	defer p.close()
	if err := p.take(ctx); err != nil {
		return err
	}
	return sessionfile.Write(ctx, to, p.head, sessionfile.Contents{Store: p.store, Listing: p.listing, Layers: p.layers})
}

// parcel is what an archive is made of.
type parcel struct {
	s      *session
	head   sessionfile.Head
	store  *blob.Store
	batch  *blob.Batch // while it is open, nothing that head names is collected
	layers []*sessionfile.Layer
}

func (p *parcel) listing(ref blob.Ref) (*workspace.Listing, error) {
	return checkpoint.ReadListing(p.store, ref)
}

func (p *parcel) close() {
	for _, l := range p.layers {
		_ = l.Close() // nobody needs it any more
	}
	if p.batch != nil {
		_ = p.batch.Close() // nothing was put
	}
}

// take takes the session's state up in a form that depends on nothing here. It
// is the session's turn as long as that lasts.
func (p *parcel) take(ctx context.Context) error {
	s := p.s
	t, err := s.turns.take(ctx, "", nil)
	if err != nil {
		return err
	}
	defer s.turns.leave(t)
	if err := s.checkpoints.keepLast(t.ctx); err != nil {
		return err
	}
	if s.backend == nil {
		return s.backendErr
	}
	if p.store, err = s.manager.local.Blobs(string(s.owner)); err == nil {
		p.batch, err = p.store.Begin(t.ctx)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	p.head = sessionfile.Head{ExportedAt: time.Now().UTC(), Isolation: s.record.Isolation, Settings: sessionfile.Settings(s.record.Settings)}
	p.head.Settings.Machine = p.head.Settings.Machine.Portable()
	s.mu.Unlock()
	s.checkpoints.mu.Lock()
	c := s.checkpoints.repo.Head().Clone()
	c.Machine, c.Waiting = nil, nil // they fit nowhere but here
	s.checkpoints.mu.Unlock()
	for runtime, in := range c.Interpreters {
		if in, err = p.carry(t, runtime, in); err != nil {
			return err
		}
		c.Interpreters[runtime] = in
	}
	p.head.Checkpoint = c
	return nil
}

// carry takes an interpreter's whole state up.
func (p *parcel) carry(t *turn, runtime string, was history.Interpreter) (history.Interpreter, error) {
	s := p.s
	live, err := s.interpreters.live(t, sandbox.Runtime{Name: runtime})
	if err != nil {
		return was, err
	}
	if why, lost := s.lostReasons[runtime]; lost {
		return was, fault.New(fault.Unsupported, "the %s interpreter cannot be exported: %s", runtime, why).WithHint("run something in it first: then what it holds is exported")
	}
	snapshotter, ok := live.(sandbox.Snapshotter)
	if !ok {
		return was, fault.New(fault.Unsupported, "the isolation %q cannot give its interpreters away", s.backendName())
	}
	layer, err := s.manager.scratch.Layer()
	if err != nil {
		return was, err
	}
	p.layers = append(p.layers, layer)
	s.checkpoints.mu.Lock()
	s.checkpoints.needsFull[runtime] = true
	s.checkpoints.mu.Unlock()
	got, err := guard("exporting", func() (sandbox.Snapshot, error) {
		return snapshotter.Snapshot(t.ctx, layer, sandbox.SnapshotOptions{Portable: true})
	})
	if err != nil {
		return was, err
	}
	was.State, was.Layers, was.Mark, was.Anew = got.State, []blob.Ref{layer.Ref()}, "", true
	return was, nil
}

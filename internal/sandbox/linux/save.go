//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

var _ sandbox.MachineSaver = (*Backend)(nil)

// savedBeyond is what a saved box may take beyond its programs' memory, in bytes:
// what was written upon its root aside, the sentry's own tables.
const savedBeyond = 128 << 20

// mostNameless bounds the files in a folder that were deleted and are still open, in
// bytes: a saved box has them in it.
const mostNameless = 32 << 20

// SaveMachine writes a box as its sentry describes it. Nothing of that is looked at
// here: the sentry may belong to its guest, and only another one reads it.
func (b *Backend) SaveMachine(ctx context.Context, owner, box string, most int64, w io.Writer, still func() error) (sandbox.SavedMachine, error) {
	b.mu.Lock()
	m := b.machines[owner+"\x00"+box]
	b.mu.Unlock()
	if m == nil || !m.running() {
		return sandbox.SavedMachine{}, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	from, err := b.origin(m.box.plan)
	if err != nil {
		return sandbox.SavedMachine{}, err
	}
	if used := m.watch.used(); used > most {
		return sandbox.SavedMachine{}, tooLarge(used, most)
	}
	// What has no name any more its sentry reads into its own memory.
	nameless, _ := unnamed(m.box.sentry.cmd.Process.Pid)
	for n := range m.box.plan.folders {
		if bytes := nameless[folderPath(n)]; bytes > mostNameless {
			return sandbox.SavedMachine{}, fault.New(fault.Exhausted, "a program has files open that were deleted, of %d MiB, and machines with more than %d are not saved", bytes>>20, mostNameless>>20).
				WithHint("close them")
		}
	}
	state, err := json.Marshal(from)
	if err != nil {
		return sandbox.SavedMachine{}, err
	}
	out := &iolimit.Writer{W: w, Left: min(most, m.box.plan.memory) + m.box.plan.overlayBytes + savedBeyond, Over: errTooLarge}
	err = m.client.Hold(ctx, func() error {
		return m.box.still(ctx, func() error {
			if err := still(); err != nil {
				return err
			}
			return m.box.save(ctx, out)
		})
	})
	if err != nil && ctx.Err() != nil {
		m.box.close() // nobody knows in which state it is
	}
	if errors.Is(err, errTooLarge) {
		err = tooLarge(out.N, most)
	}
	if err != nil {
		return sandbox.SavedMachine{}, fmt.Errorf("saving a machine: %w", err)
	}
	return sandbox.SavedMachine{State: state, Bytes: out.N}, nil
}

func tooLarge(has, most int64) error {
	return fault.New(fault.Exhausted, "the machine holds %d MiB, and machines with more than %d are not saved", has>>20, most>>20).
		WithHint("free memory in it, or write what matters to files")
}

var errTooLarge = errors.New("the box is larger than it may be")

// call asks the sentry for something. When ctx ends before it has answered, the sentry
// does, and with it the box: nothing else ends a call.
func (b *box) call(ctx context.Context, method string, question, answer any) error {
	stop := context.AfterFunc(ctx, func() { _ = b.sentry.cmd.Process.Kill() })
	defer stop()
	if err := b.control.Call(method, question, answer); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// still calls f while nothing in the box runs.
func (b *box) still(ctx context.Context, f func() error) (err error) {
	if err := b.call(ctx, boot.ContMgrPause, &struct{}{}, &struct{}{}); err != nil {
		return fmt.Errorf("stopping the box: %w", err)
	}
	defer func() {
		if failed := b.call(ctx, boot.ContMgrResume, &struct{}{}, &struct{}{}); failed != nil {
			b.close()
			err = errors.Join(err, fmt.Errorf("letting the box go on: %w", failed))
		}
	}()
	return f()
}

// savePiece is how much of a box's state is under way at once, in bytes.
const savePiece = 1 << 20

// save has the sentry write all of the box.
func (b *box) save(ctx context.Context, w io.Writer) error {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(w, struct{ io.Reader }{ours}, make([]byte, savePiece))
		ours.Close() // an error ends the sentry's writing
		copied <- err
	}()
	o := control.SaveOpts{
		Metadata: statefile.CompressionLevelNone.ToMetadata(), AppMFExcludeCommittedZeroPages: true,
		FilePayload: urpc.FilePayload{Files: []*os.File{theirs}}, Resume: true,
	}
	err = b.call(ctx, boot.ContMgrCheckpoint, &o, nil)
	theirs.Close()
	if failed := <-copied; failed != nil {
		return failed
	}
	return err
}

// restore has the sentry become what the plan's state says, and connects to it
// again: it closes its connections then.
func (b *box) restore(ctx context.Context, l *launcher, path string) (err error) {
	o := boot.RestoreOpts{FilePayload: urpc.FilePayload{Files: []*os.File{b.plan.state}}}
	if err := b.call(ctx, boot.ContMgrRestore, &o, nil); err != nil {
		return fmt.Errorf("restoring the box: %w", err)
	}
	b.control.Close()
	if b.control, err = l.connect(path); err != nil {
		return fmt.Errorf("connecting to the restored sentry: %w", err)
	}
	return nil
}

// recall gives a plan the state that its box begins as.
func (b *Backend) recall(p *plan, state *sandbox.MachineState) error {
	now, err := b.origin(p)
	if err != nil {
		return err
	}
	if err := now.accepts(state.State); err != nil {
		return err
	}
	p.state, err = b.spool(p, state)
	return err
}

// spool copies a box's state into a file that its sentry can be given. It is closed
// when it is used no more.
func (b *Backend) spool(p *plan, state *sandbox.MachineState) (*os.File, error) {
	r, err := state.Open()
	if err != nil {
		return nil, fmt.Errorf("opening a machine's state: %w", err)
	}
	defer r.Close()
	f, err := b.launcher.nameless()
	if err != nil {
		return nil, err
	}
	out := &iolimit.Writer{W: f, Left: p.memory + p.overlayBytes + savedBeyond, Over: errTooLarge}
	if _, err = io.CopyBuffer(out, struct{ io.Reader }{r}, make([]byte, savePiece)); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("reading a machine's state: %w", err)
	}
	return f, nil
}

// resume boots the machine as it was saved.
func (m *machine) resume(ctx context.Context, b *Backend, p *plan, cg *cgroup) (err error) {
	defer p.state.Close()
	if m.box, err = b.launcher.boot(ctx, p, cg); err == nil {
		m.client, m.survivors, err = wire.NewRestoredClient(ctx, m.box.stream, wire.RestoredBody{Reseed: m.state.Reseed, Listen: m.listens()}, m.spec.Proxy, b.translator(m.spec.Owner))
		if err != nil {
			err = errors.Join(err, errors.New(m.box.close()))
		}
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return unusable("it does not fit this machine or these files any more", err)
}

// claim gives an interpreter of a runtime that the machine had when it was saved,
// to one who asks for it; nil: there is none, or not any more.
func (b *Backend) claim(m *machine, runtime string) (*wire.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, s := range m.survivors {
		if s.Runtime == runtime {
			m.survivors = append(m.survivors[:n:n], m.survivors[n+1:]...)
			return m.client.Adopt(s)
		}
	}
	return nil, nil
}

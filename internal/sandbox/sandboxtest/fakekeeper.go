package sandboxtest

import (
	"bytes"
	"context"
	"encoding/gob"
	"io"
	"maps"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// FakeKeeper is a FakeMachines that saves its machines.
type FakeKeeper struct {
	*FakeMachines
	// Refuse, when set, is asked before a machine is saved; its error is the answer.
	Refuse func() error
	// Forget, when set, is asked before one that was saved is booted; likewise.
	Forget func() error
}

// Start makes an interpreter in its machine.
func (b *FakeKeeper) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if spec.Machine != nil && b.Forget != nil {
		if err := b.Forget(); err != nil {
			return nil, err
		}
	}
	return b.FakeMachines.Start(ctx, spec)
}

// NewFakeKeeper makes a backend without machines.
func NewFakeKeeper(config FakeConfig) *FakeKeeper {
	return &FakeKeeper{FakeMachines: NewFakeMachines(config)}
}

var (
	_ sandbox.MachineSaver     = (*FakeKeeper)(nil)
	_ sandbox.RestoredInstance = (*fakeTenant)(nil)
)

// fakeMachineState is a SavedMachine's State.
const fakeMachineState = "fake machine 1"

// fakeSaved is an interpreter of a machine that was saved.
type fakeSaved struct {
	Runtime      string
	State, Layer []byte
	Processes    []sandbox.Process
	Printed      []byte
}

// SaveMachine writes what is in a machine.
func (b *FakeKeeper) SaveMachine(ctx context.Context, owner, box string, most int64, w io.Writer, still func() error) (sandbox.SavedMachine, error) {
	b.mu.Lock()
	m := b.boxes[owner+"\x00"+box]
	var tenants []*fakeTenant
	if m != nil {
		for in := range m.tenants {
			tenants = append(tenants, in)
		}
	}
	b.mu.Unlock()
	switch {
	case m == nil:
		return sandbox.SavedMachine{}, fault.New(fault.NotFound, "the machine %q is not running", box)
	case b.Memory(owner, box) > most:
		return sandbox.SavedMachine{}, fault.New(fault.Exhausted, "the machine is too large to be saved")
	}
	if b.Refuse != nil {
		if err := b.Refuse(); err != nil {
			return sandbox.SavedMachine{}, err
		}
	}
	var all []fakeSaved
	for _, in := range tenants {
		one := fakeSaved{Runtime: in.runtime}
		var layer bytes.Buffer
		got, err := in.inner.(sandbox.Snapshotter).Snapshot(ctx, &layer, sandbox.SnapshotOptions{Whole: true})
		if err != nil {
			return sandbox.SavedMachine{}, err
		}
		in.mu.Lock()
		one.State, one.Layer, one.Processes, one.Printed = got.State, layer.Bytes(), in.processes, in.printed
		in.mu.Unlock()
		all = append(all, one)
	}
	if err := still(); err != nil {
		return sandbox.SavedMachine{}, err
	}
	data := encodeFake(all)
	if _, err := w.Write(data); err != nil {
		return sandbox.SavedMachine{}, err
	}
	return sandbox.SavedMachine{State: []byte(fakeMachineState), Bytes: int64(len(data))}, nil
}

// readFakeMachine gives the interpreters of a saved machine by their runtimes.
func readFakeMachine(state *sandbox.MachineState) (map[string]fakeSaved, error) {
	if string(state.State) != fakeMachineState {
		return nil, fault.New(fault.Unsupported, "another build made it")
	}
	r, err := state.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []fakeSaved
	if err := gob.NewDecoder(r).Decode(&all); err != nil {
		return nil, fault.New(fault.Unsupported, "it is damaged").WithCause(err)
	}
	saved := map[string]fakeSaved{}
	for _, one := range all {
		saved[one.Runtime] = one
	}
	return saved, nil
}

// resume has a Spec start one that was saved, as the box begins again or not.
func (one fakeSaved) resume(anew bool) *sandbox.Resume {
	return &sandbox.Resume{State: one.State, Reseed: anew, Layers: []func() (io.ReadCloser, error){
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(one.Layer)), nil },
	}}
}

// claim gives one that was saved, once. The caller holds FakeMachines.mu.
func (m *fakeBox) claim(runtime string) (one fakeSaved, ok bool) {
	one, ok = m.saved[runtime]
	m.saved = maps.Clone(m.saved)
	delete(m.saved, runtime)
	return one, ok
}

// WasRestored tells whether it was in the machine when that was saved.
func (in *fakeTenant) WasRestored() bool { return in.survived }

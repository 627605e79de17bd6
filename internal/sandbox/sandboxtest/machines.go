package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// machineKit is a kit whose backend saves machines.
type machineKit struct {
	*kit
	saver sandbox.MachineSaver
}

// withMachines skips a test where the backend saves no machines.
func (k *kit) withMachines(test func(k machineKit, t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		saver, ok := k.backend.(sandbox.MachineSaver)
		if !ok {
			t.Skip("this backend saves no machines")
		}
		test(machineKit{k, saver}, t)
	}
}

// boxed describes an interpreter in a box with a folder that holds a file "in".
func (k *kit) boxed(t *testing.T) sandbox.Spec {
	t.Helper()
	dir := k.folder(t)
	k.put(t, filepath.Join(dir, "in"), "its head and the rest")
	spec := k.spec(dir)
	spec.Box = filepath.Base(filepath.Dir(dir))
	return spec
}

// save saves the box of a Spec.
func (k machineKit) save(t *testing.T, spec sandbox.Spec) *sandbox.MachineState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var data bytes.Buffer
	stood := 0
	s, err := k.saver.SaveMachine(ctx, spec.Owner, spec.Box, 1<<40, &data, func() error { stood++; return nil })
	if err != nil {
		t.Fatalf("saving a machine: %v", err)
	}
	if stood != 1 {
		t.Errorf("it stood still %d times, want 1", stood)
	}
	if n := len(s.State); n == 0 || n > 4<<10 {
		t.Errorf("its state has %d bytes, want 1 to %d", n, 4<<10)
	}
	if s.Bytes == 0 || s.Bytes != int64(data.Len()) {
		t.Errorf("it says that it wrote %d bytes, and wrote %d", s.Bytes, data.Len())
	}
	return &sandbox.MachineState{State: s.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }}
}

// again starts an interpreter in a machine that begins as what was saved.
func (k machineKit) again(t *testing.T, spec sandbox.Spec, state *sandbox.MachineState) sandbox.Instance {
	t.Helper()
	spec.Machine = state
	in := k.start(t, spec)
	if s, ok := in.(sandbox.RestoredInstance); !ok || !s.WasRestored() {
		t.Error("it did not survive")
	}
	return in
}

// testMachines is about machines that are saved with all that is in them.
func (k machineKit) testMachines(t *testing.T) {
	t.Run("what was there is there again", func(t *testing.T) {
		spec := k.boxed(t)
		in := k.start(t, spec)
		works(t, in, lines(k.Set("x", 41), k.Import), "")
		works(t, in, k.Define, "")
		state := k.save(t, spec)
		works(t, in, k.Show("x"), "41") // it goes on
		works(t, in, k.Set("x", 0), "")
		in.Close()
		again := k.again(t, spec, state)
		works(t, again, k.Show("x"), "41")
		works(t, again, k.UseDefined, "42")
		works(t, again, k.Set("x", 1), "")
		state = k.save(t, spec)
		again.Close()
		again = k.again(t, spec, state)
		works(t, again, k.Show("x"), "1")
		works(t, again, k.UseImport, "3")
	})
	t.Run("each interpreter is given once", k.testClaims)
	t.Run("it may be somewhere else", k.testElsewhere)
	t.Run("two new ones draw different numbers", func(t *testing.T) {
		spec := k.boxed(t)
		in := k.start(t, spec)
		run(t, in, code(k.Random))
		state := k.save(t, spec)
		in.Close()
		state.Reseed = true
		seen := map[string]bool{}
		for range 2 {
			again := k.again(t, spec, state)
			seen[run(t, again, code(k.Random)).stdout] = true
			again.Close()
		}
		if len(seen) != 2 {
			t.Errorf("they drew %v", seen)
		}
	})
	t.Run("what cannot be saved", k.testUnsaved)
	t.Run("what cannot be gone on with", k.testUnfitMachine)
}

func (k machineKit) testClaims(t *testing.T) {
	spec := k.boxed(t)
	in := k.start(t, spec)
	works(t, in, k.Set("x", 41), "")
	state := k.save(t, spec)
	in.Close()
	first := k.again(t, spec, state)
	second := k.start(t, spec)
	if second.(sandbox.RestoredInstance).WasRestored() {
		t.Error("the second one survived, too")
	}
	works(t, first, k.Show("x"), "41")
	fails(t, second, k.Show("x"))
}

// testElsewhere restores a machine upon another folder with the same files.
func (k machineKit) testElsewhere(t *testing.T) {
	spec := k.boxed(t)
	in := k.start(t, spec)
	works(t, in, k.Set("x", 41), "")
	state := k.save(t, spec)
	other := k.boxed(t) // the first one lives on beside it
	k.put(t, filepath.Join(other.Mounts[0].Host, "in"), "other text")
	again := k.again(t, other, state)
	works(t, again, k.Show("x"), "41")
	works(t, again, k.Read(other.Mounts[0].Guest+"/in"), "other text")
	works(t, again, k.Write(other.Mounts[0].Guest+"/out", "made"), "")
	if text, err := os.ReadFile(filepath.Join(other.Mounts[0].Host, "out")); err != nil || string(text) != "made" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(spec.Mounts[0].Host, "out")); err == nil {
		t.Error("it is in the folder of the first one")
	}
	works(t, in, k.Show("x"), "41")
}

func (k machineKit) testUnsaved(t *testing.T) {
	spec := k.boxed(t)
	save := func(most int64, w io.Writer, still func() error) error {
		_, err := k.saver.SaveMachine(t.Context(), spec.Owner, spec.Box, most, w, still)
		return err
	}
	nothing := func() error { return nil }
	wantFault(t, save(1<<40, io.Discard, nothing), fault.NotFound)
	in := k.start(t, spec)
	works(t, in, k.Set("x", 41), "")
	wantFault(t, save(1<<10, io.Discard, nothing), fault.Exhausted)
	broken := errors.New("on purpose")
	if err := save(1<<40, io.Discard, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("still's error is %v", err)
	}
	if err := save(1<<40, brokenWriter{}, nothing); err == nil {
		t.Error("the other side neither reads nor writes")
	}
	// After all that it goes on, and can be saved.
	works(t, in, k.Show("x"), "41")
	state := k.save(t, spec)
	ctx, cancel := context.WithCancel(t.Context())
	ended := background(ctx, t, in, lines(k.Print("begun"), k.Sleep), sandbox.RunLimits{})
	wantFault(t, save(1<<40, io.Discard, nothing), fault.Conflict)
	cancel()
	await(t, "the end of the program", ended)
	in.Close()
	works(t, k.again(t, spec, state), k.Show("x"), "41")
}

func (k machineKit) testUnfitMachine(t *testing.T) {
	spec := k.boxed(t)
	in := k.start(t, spec)
	state := k.save(t, spec)
	in.Close()
	broken := errors.New("on purpose")
	for name, s := range map[string]*sandbox.MachineState{
		"what says where it is from is damaged": {State: []byte("x"), Open: state.Open},
		"it is something else": {State: state.State, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(bytes.Repeat([]byte("x"), 1<<16))), nil
		}},
		"it is empty": {State: state.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(nil)), nil }},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Machine = s
			_, err := k.backend.Start(t.Context(), spec)
			wantFault(t, err, fault.Unsupported)
		})
	}
	spec.Machine = &sandbox.MachineState{State: state.State, Open: func() (io.ReadCloser, error) { return nil, broken }}
	if _, err := k.backend.Start(t.Context(), spec); !errors.Is(err, broken) {
		t.Errorf("when it cannot be opened: %v", err)
	}
	works(t, k.again(t, spec, state), k.Print("here"), "here")
}

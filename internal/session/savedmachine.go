package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// A machine is saved with all that runs in it when the session goes to sleep, or was
// not used for a while, when a checkpoint is asked for, and at a fork: not after every
// run, which would cost what its memory is large. The first checkpoint after the next
// run says nothing of it again: the state of the machine and the files of a checkpoint
// belong together.

// saveTime bounds how long a machine may take to be saved, as a part of keepTime. One that
// takes longer ends, with all that it holds: so it is far more than a gigabyte takes on a
// slow disk that others write to.
const saveTime = 4 * time.Minute

// canSave reports whether machines like this one are saved.
func (r *machineResidence) canSave() bool {
	return r.machineSaver != nil && r.s.manager.config.MachineStateBytes >= 0
}

// saver ends what no program used: there is nothing in it to be saved.
func (r *machineResidence) saver() checkpoint.SaveMachine {
	save := r.saveMachine()
	if save != nil {
		r.dropPrestarted()
	}
	return save
}

// saveMachine gives what saves the machine; nil: there is nothing to be saved.
func (r *machineResidence) saveMachine() checkpoint.SaveMachine {
	s, live := r.s, r.s.interpreters.list()
	if len(live) == 0 || !r.canSave() {
		return nil
	}
	room := s.manager.disk.check(s.owner, r.memoryNow(0)) // it may not become smaller on disk
	return func(ctx context.Context, w io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		if room != nil {
			return nil, nil, room
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		defer cancel()
		held := inspectAll(ctx, live)
		got, err := guard("saving a machine", func() (sandbox.SavedMachine, error) {
			return r.machineSaver.SaveMachine(ctx, string(s.owner), string(s.id), s.manager.config.MachineStateBytes, w, still)
		})
		return got.State, held, err
	}
}

// inspectAll is what interpreters hold; nil for those that do not say.
func inspectAll(ctx context.Context, live map[string]sandbox.Instance) map[string]*sandbox.Inspection {
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	all := map[string]*sandbox.Inspection{}
	for runtime, in := range live {
		all[runtime] = nil
		if runtime == sandbox.CommandRuntime {
			continue
		}
		if found, err := guard("inspecting", func() (sandbox.Inspection, error) { return in.Inspect(ctx) }); err == nil {
			all[runtime] = &found
		}
	}
	return all
}

// SavedMachines calls visit with the state of every machine that a checkpoint holds, of
// whomever and whatever process: a sandbox.MachineState's.
func (m *Manager) SavedMachines(visit func(state []byte)) error {
	err := m.store.EachCheckpoint(func(c *history.Manifest) {
		if c.Machine != nil {
			visit(c.Machine.State)
		}
	})
	if err != nil {
		return fmt.Errorf("looking for saved machines: %w", err)
	}
	return nil
}

// machineKey is what session.mustReseed has for the machine: its state has been gone on
// from. No runtime is called so.
const machineKey = "(machine)"

// savedState gives what the machine is to begin as; nil: afresh.
func (r *machineResidence) savedState() *sandbox.MachineState {
	s := r.s
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if r.machineSaver == nil || s.interpreters.count() > 0 {
		return nil
	}
	state := s.checkpoints.repo.Machine()
	if state != nil && !r.waitsInHead() {
		state.Reseed = state.Reseed || s.interpreters.mustReseed[machineKey]
	}
	return state
}

// waitsInHead reports whether the head's machine has a run in it that waits: then
// nothing has run in its interpreter since. The caller holds checkpoints.mu.
func (r *machineResidence) waitsInHead() bool {
	head := r.s.checkpoints.repo.Head()
	w := head.Waits()
	return w != nil && head.Machine.Holds(w.Runtime)
}

// adoptRestored deals with a machine that began as what was saved, of which in is an
// interpreter: the others that it holds are taken over, and of those that it does
// not the next result tells.
func (r *machineResidence) adoptRestored(ctx context.Context, spec sandbox.Spec, in sandbox.Instance) {
	s := r.s
	s.interpreters.mustReseed[machineKey] = true
	s.checkpoints.mu.Lock()
	held := s.checkpoints.repo.Head().Machine.Interpreters
	s.checkpoints.mu.Unlock()
	for _, runtime := range slices.Sorted(maps.Keys(held)) {
		other := in
		if runtime != spec.Runtime {
			spec := s.interpreters.spec(runtime)
			var err error
			if other, err = guard("going on", func() (sandbox.Instance, error) { return r.backend.Start(ctx, spec) }); err != nil {
				s.manager.log.WarnContext(ctx, "an interpreter is not in its machine any more", "session", s.id, "runtime", runtime, "cause", fault.CauseOf(err))
			} else {
				s.interpreters.put(runtime, other)
			}
		}
		one, ok := other.(sandbox.RestoredInstance)
		if ok && one.WasRestored() {
			delete(s.lostReasons, runtime)
		} else if runtime != sandbox.CommandRuntime {
			s.lostReasons[runtime] = "it was not in the machine any more that was kept"
		}
	}
}

// restoreFailed notes that what was saved of the machine cannot be gone on with.
func (r *machineResidence) restoreFailed(why string) {
	s := r.s
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	for runtime := range s.checkpoints.repo.Head().Machine.Interpreters {
		if runtime != sandbox.CommandRuntime {
			s.lostReasons[runtime] = "what was kept of its machine cannot be gone on with (" + why + ")"
		}
	}
}

// checkpoint makes a checkpoint with the machine before that ends, and reports whether it
// did: then nothing of it is lost. It is the caller's turn.
func (r *machineResidence) checkpoint(ctx context.Context, n checkpoint.Note) bool {
	s := r.s
	n.Save, n.MachineMoved, n.Resting = r.saveMachine(), true, true
	switch {
	case n.Save == nil || s.isEphemeral():
		return false
	case n.Cause == history.CauseIdle:
		n.Save = s.turns.unlessWaiters(n.Save)
	default:
		r.dropPrestarted() // of which nobody has anything to keep
	}
	if _, err := s.checkpoints.keep(ctx, n, nil); errors.Is(err, errTurnAwaited) {
		return false
	} else if err != nil {
		s.manager.log.WarnContext(ctx, "a machine could not be saved", "session", s.id, "cause", fault.CauseOf(err))
		return false
	}
	s.interpreters.mustReseed[machineKey] = n.Cause != history.CauseSleep // then it goes on meanwhile
	return true
}

// saved says that nothing has run since the machine was saved.
func (r *machineResidence) saved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsavedSince = time.Time{}
}

func (r *machineResidence) saveLast(ctx context.Context) bool {
	return r.checkpoint(ctx, checkpoint.Note{Cause: history.CauseSleep})
}

// saveForFork saves the machine where nobody is at work in the session.
func (r *machineResidence) saveForFork(ctx context.Context) {
	if r.machineSaver == nil {
		return
	}
	t := r.s.turns.try(ctx)
	if t == nil {
		return // a program runs, which has no part in the fork
	}
	defer r.s.turns.leave(t)
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	r.s.interpreters.reapDead(ctx)
	r.checkpoint(ctx, checkpoint.Note{Cause: history.CauseFork})
}

// forgetSaved has the next interpreter begin in a fresh machine.
func (r *machineResidence) forgetSaved(ctx context.Context) error {
	s := r.s
	s.checkpoints.mu.Lock()
	there := s.checkpoints.repo.Head().Machine != nil
	s.checkpoints.mu.Unlock()
	if !there {
		return nil
	}
	_, err := s.checkpoints.keep(ctx, checkpoint.Note{Cause: history.CauseFiles, MachineMoved: true, Resting: true}, nil)
	return err
}

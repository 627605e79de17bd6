package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
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

// keeper is the session's isolation, where that saves machines; nil: it does not.
func (s *session) keeper() sandbox.Keeper {
	k, _ := s.backend.(sandbox.Keeper)
	return k
}

// savesMachines tells whether machines of sessions like this one are saved.
func (s *session) savesMachines() bool {
	return s.keeper() != nil && s.manager.config.MachineStateBytes >= 0
}

// saver gives what saves the session's machine; nil: there is nothing to be saved.
// It is the caller's turn.
func (s *session) saver() checkpoint.SaveMachine {
	k, live := s.keeper(), s.live()
	if len(live) == 0 || !s.savesMachines() {
		return nil
	}
	room := s.manager.checkDisk(s.owner, s.memoryNow(0)) // it may not become smaller on disk
	return func(ctx context.Context, w io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		if room != nil {
			return nil, nil, room
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		defer cancel()
		held := s.held(ctx, live)
		got, err := guard("saving a machine", func() (sandbox.SavedMachine, error) {
			return k.SaveMachine(ctx, string(s.owner), string(s.id), s.manager.config.MachineStateBytes, w, still)
		})
		return got.State, held, err
	}
}

// held is what interpreters hold; nil for those that do not say.
func (s *session) held(ctx context.Context, live map[string]sandbox.Instance) map[string]*sandbox.Inspection {
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
	for _, folder := range m.ownerFolders() {
		err := history.Each(filepath.Join(m.config.Dir, "checkpoints", folder), m.config.files(), func(c *history.Manifest, _ bool) error {
			if c.Machine != nil {
				visit(c.Machine.State)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("looking for saved machines: %w", err)
		}
	}
	return nil
}

// machineAnew is what session.anew has for the machine: its state has been gone on
// from. No runtime is called so.
const machineAnew = "(machine)"

// machineState gives what a machine is to begin as; nil: afresh.
func (s *session) machineState() *sandbox.MachineState {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.keeper() == nil || len(s.live()) > 0 {
		return nil
	}
	state := s.kept.Machine()
	if state != nil && !s.waitsInMachine() {
		state.Anew = state.Anew || s.anew[machineAnew]
	}
	return state
}

// waitsInMachine tells whether the head's machine has a run in it that waits: then
// nothing has run in its interpreter since. The caller holds s.keeping.
func (s *session) waitsInMachine() bool {
	head := s.kept.Head()
	w := head.Waits()
	return w != nil && head.Machine.Holds(w.Runtime)
}

// survived deals with a machine that began as what was saved, of which in is an
// interpreter: the others that it holds are taken over, and of those that it does
// not the next result tells.
func (s *session) survived(ctx context.Context, spec sandbox.Spec, in sandbox.Instance) {
	s.anew[machineAnew] = true
	s.keeping.Lock()
	held := s.kept.Head().Machine.Interpreters
	s.keeping.Unlock()
	for _, runtime := range slices.Sorted(maps.Keys(held)) {
		other := in
		if runtime != spec.Runtime {
			spec := s.spec(runtime)
			var err error
			if other, err = guard("going on", func() (sandbox.Instance, error) { return s.backend.Start(ctx, spec) }); err != nil {
				s.manager.log.WarnContext(ctx, "an interpreter is not in its machine any more", "session", s.id, "runtime", runtime, "cause", fault.CauseOf(err))
			} else {
				s.mu.Lock()
				s.interpreters[runtime] = other
				s.mu.Unlock()
			}
		}
		one, ok := other.(sandbox.Survivor)
		if ok && one.Survived() {
			delete(s.lost, runtime)
		} else if runtime != sandbox.CommandRuntime {
			s.lost[runtime] = "it was not in the machine any more that was kept"
		}
	}
}

// notSurvived notes that what was saved of the machine cannot be gone on with.
func (s *session) notSurvived(why string) {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	for runtime := range s.kept.Head().Machine.Interpreters {
		if runtime != sandbox.CommandRuntime {
			s.lost[runtime] = "what was kept of its machine cannot be gone on with (" + why + ")"
		}
	}
}

// keepMachine makes a checkpoint with the machine before that ends, and tells
// whether it did: then nothing of it is lost. It is the caller's turn.
func (s *session) keepMachine(ctx context.Context, n checkpoint.Note) bool {
	n.Save, n.MachineMoved, n.Resting = s.saver(), true, true
	switch {
	case n.Save == nil || s.passing():
		return false
	case n.Cause == history.CauseIdle:
		n.Save = s.unlessAwaited(n.Save)
	default:
		s.dropSpare() // of which nobody has anything to keep
	}
	if _, err := s.keep(ctx, n, nil); errors.Is(err, errAwaited) {
		return false
	} else if err != nil {
		s.manager.log.WarnContext(ctx, "a machine could not be saved", "session", s.id, "cause", fault.CauseOf(err))
		return false
	}
	s.anew[machineAnew] = n.Cause != history.CauseSleep // then it goes on meanwhile
	return true
}

// keepForFork makes a checkpoint with the machine for a fork that begins now, where
// nobody is at work in the session.
func (s *session) keepForFork(ctx context.Context) {
	if s.keeper() == nil {
		return
	}
	t := s.borrow(ctx)
	if t == nil {
		return // a program runs, which has no part in the fork
	}
	defer s.leave(t)
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	s.bury(ctx)
	s.keepMachine(ctx, checkpoint.Note{Cause: history.CauseFork})
}

// forgetMachine has the next interpreter begin in a fresh machine. None lives, and
// it is the caller's turn.
func (s *session) forgetMachine(ctx context.Context) error {
	s.keeping.Lock()
	there := s.kept.Head().Machine != nil
	s.keeping.Unlock()
	if !there {
		return nil
	}
	_, err := s.keep(ctx, checkpoint.Note{Cause: history.CauseFiles, MachineMoved: true, Resting: true}, nil)
	return err
}

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// A machine is saved with all that runs in it when the session goes to sleep, or was
// not used for a while, when a checkpoint is asked for, and at a fork: not after every
// run, which would cost what its memory is large. The first checkpoint after the next run says nothing of
// it again: the state of the machine and the files of a checkpoint belong together.

// saveTime bounds how long a machine may take to be saved.
const saveTime = time.Minute

// saveMachine writes to w what the session's machine is; still is called while
// nothing in it runs.
type saveMachine func(ctx context.Context, w io.Writer, still func() error) (*history.Machine, error)

// keeper is the session's isolation, where that saves machines; nil: it does not.
func (s *session) keeper() sandbox.Keeper {
	k, _ := s.backend.(sandbox.Keeper)
	return k
}

// saver gives what saves the session's machine; nil: there is nothing to be saved.
// It is the caller's turn.
func (s *session) saver() saveMachine {
	k, live := s.keeper(), s.live()
	if k == nil || len(live) == 0 || s.manager.config.MachineStateBytes < 0 {
		return nil
	}
	room := s.manager.checkDisk(s.owner, s.memoryNow(0)) // it may not become smaller on disk
	return func(ctx context.Context, w io.Writer, still func() error) (*history.Machine, error) {
		if room != nil {
			return nil, room
		}
		ctx, cancel := context.WithTimeout(ctx, saveTime)
		defer cancel()
		m := &history.Machine{Interpreters: s.held(ctx, live)}
		got, err := guard("saving a machine", func() (sandbox.SavedMachine, error) {
			return k.SaveMachine(ctx, string(s.owner), string(s.id), s.manager.config.MachineStateBytes, w, still)
		})
		m.State = got.State
		return m, err
	}
}

// held is what interpreters hold, as far as they say so.
func (s *session) held(ctx context.Context, live map[string]sandbox.Instance) map[string]history.Interpreter {
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	all := map[string]history.Interpreter{}
	for runtime, in := range live {
		var one history.Interpreter
		if runtime != sandbox.CommandRuntime {
			if found, err := guard("inspecting", func() (sandbox.Inspection, error) { return in.Inspect(ctx) }); err == nil {
				one = history.Interpreter{Known: true, Imports: found.Imports, Memory: found.Memory, Variables: variables(found.Variables)}
			}
		}
		all[runtime] = one
	}
	return all
}

// variables are an inspection's as a checkpoint holds them.
func variables(list []sandbox.Variable) (all []history.Variable) {
	for _, v := range list {
		all = append(all, history.Variable{Name: v.Name, Type: v.Type, Preview: v.Preview})
	}
	return all
}

// captureWith takes the files up, and the machine with them where it is to be saved.
func (d *draft) captureWith(ctx context.Context, n note) error {
	had := d.next.Machine
	if n.moved {
		d.next.Machine = nil
	}
	if n.save == nil {
		d.changed = d.changed || had != d.next.Machine
		return d.capture(nil)
	}
	w := d.batch.Writer(blob.Plain)
	defer w.Discard()
	captured := false
	m, err := n.save(ctx, w, func() error {
		captured = true
		return d.capture(nil)
	})
	if err != nil {
		return fmt.Errorf("keeping the machine: %w", err)
	}
	if !captured {
		return fault.New(fault.Internal, "a machine was saved without its files")
	}
	if m.Content, err = w.Close(); err != nil {
		return fmt.Errorf("keeping the machine: %w", err)
	}
	d.bytes += m.Content.Stored
	d.next.Machine, d.changed = m, true
	return nil
}

// rest makes the draft what head is, at rest: no step that could be undone. Where
// files were changed meanwhile it is one.
func (d *draft) rest() {
	if head := d.k.head; head != nil && len(d.files) == 0 {
		d.next.Of, d.next.Previous = head.Of, head.Previous
	}
}

// again is a machine's state that is gone on with for another time, or elsewhere.
func again(m *history.Machine) *history.Machine {
	if m == nil {
		return nil
	}
	other := *m
	other.Anew = true
	return &other
}

// holds tells whether the checkpoint where the session is has what a runtime held.
func (k *kept) holds(runtime string) bool {
	if k.head == nil {
		return false
	}
	if _, there := k.head.Interpreters[runtime]; there {
		return true
	}
	return k.head.Machine != nil && has(k.head.Machine.Interpreters, runtime)
}

func has[V any](all map[string]V, name string) bool {
	_, there := all[name]
	return there
}

// machineAnew is what session.anew has for the machine: its state has been gone on
// from. No runtime is called so.
const machineAnew = "(machine)"

// machineState gives what a machine is to begin as; nil: afresh.
func (s *session) machineState() *sandbox.MachineState {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.keeper() == nil || len(s.live()) > 0 || s.kept.head == nil || s.kept.head.Machine == nil {
		return nil
	}
	m, blobs := s.kept.head.Machine, s.kept.blobs
	return &sandbox.MachineState{State: m.State, Anew: m.Anew || s.anew[machineAnew], Open: func() (io.ReadCloser, error) { return blobs.Open(m.Content) }}
}

// survived deals with a machine that began as what was saved, of which in is an
// interpreter: the others that it holds are taken over, and of those that it does
// not the next result tells.
func (s *session) survived(ctx context.Context, spec sandbox.Spec, in sandbox.Instance) {
	s.anew[machineAnew] = true
	s.keeping.Lock()
	held := s.kept.head.Machine.Interpreters
	s.keeping.Unlock()
	for _, runtime := range slices.Sorted(maps.Keys(held)) {
		other := in
		if runtime != spec.Runtime {
			spec := s.spec(runtime)
			var err error
			if other, err = guard("going on", func() (sandbox.Instance, error) { return s.backend.Start(ctx, spec) }); err != nil {
				s.manager.log.WarnContext(ctx, "an interpreter is not in its machine any more", "session", s.id, "runtime", runtime, "cause", causeOf(err))
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
	for runtime := range s.kept.head.Machine.Interpreters {
		if runtime != sandbox.CommandRuntime {
			s.lost[runtime] = "what was kept of its machine cannot be gone on with (" + why + ")"
		}
	}
}

// keepMachine makes a checkpoint with the machine before that ends, and tells
// whether it did: then nothing of it is lost. It is the caller's turn.
func (s *session) keepMachine(ctx context.Context, n note) bool {
	n.save, n.moved, n.resting = s.saver(), true, true
	switch {
	case n.save == nil || s.passing():
		return false
	case n.cause == causeIdle:
		n.save = s.unlessWanted(n.save)
	default:
		s.dropSpare() // of which nobody has anything to keep
	}
	if _, err := s.keep(ctx, n, nil); errors.Is(err, errWanted) {
		return false
	} else if err != nil {
		s.manager.log.WarnContext(ctx, "a machine could not be saved", "session", s.id, "cause", causeOf(err))
		return false
	}
	s.anew[machineAnew] = n.cause != causeSleep // then it goes on meanwhile
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
	s.keepMachine(ctx, note{cause: causeFork})
}

// forgetMachine has the next interpreter begin in a fresh machine. None lives, and
// it is the caller's turn.
func (s *session) forgetMachine(ctx context.Context) error {
	s.keeping.Lock()
	there := s.kept.head != nil && s.kept.head.Machine != nil
	s.keeping.Unlock()
	if !there {
		return nil
	}
	_, err := s.keep(ctx, note{cause: causeFiles, moved: true, resting: true}, nil)
	return err
}

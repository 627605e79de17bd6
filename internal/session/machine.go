package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/sessionfile"
)

// Machine is what a session's own machine is like; it travels in archives, but
// for what belongs to one host.
type (
	Machine     = sessionfile.Machine
	SandboxName = sessionfile.SandboxName
	Volume      = sessionfile.Volume
	Port        = sessionfile.Port
)

// maxCPUs bounds the processors of a machine: no host has more.
const maxCPUs = 1024

// possible reports whether there can be such a machine; what is wanted of one may come
// from an archive. Volumes and ports do not.
func possible(m *Machine) bool {
	return m == nil || m.CPUs >= 0 && m.CPUs <= maxCPUs && len(m.Image) <= maxImage && utf8.ValidString(m.Image)
}

// maxImage bounds the name of an image, in bytes: a registry's name, a path and a
// digest have fewer.
const maxImage = 1000

// ScriptsFolder is where a machine has its scripts.
const ScriptsFolder = "/.sandbox_scripts"

// scriptsFolder is the folder of a session in which they lie.
const scriptsFolder = "scripts"

// filesOnly is why variables are gone where an interpreter is not kept after a run.
const filesOnly = "its isolation keeps only files in /workspace and /tmp, unless a checkpoint is asked for or the session sleeps"

// noteUnsaved has the record tell which variables would be gone if the session
// were opened again.
func (s *session) noteUnsaved() {
	if s.backend == nil {
		return // nothing lived; what there was to tell still is
	}
	all := s.interpreters.unsavable()
	s.checkpoints.mu.Lock()
	all = slices.DeleteFunc(all, s.checkpoints.repo.Head().Holds)
	s.checkpoints.mu.Unlock()
	for runtime := range s.lostReasons { // nobody was told yet
		if !s.residence.keepsVariables() && !slices.Contains(all, runtime) {
			all = append(all, runtime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Unkept = all
}

var errHalted = fault.New(fault.Cancelled, "the session was stopped")

// checkNotHalted tells why nothing can run in the session; nil: it can. Nothing does
// while it is stopped, and what was waiting then does not begin.
func (s *session) checkNotHalted() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.record.Halted {
		return nil
	}
	return fault.New(fault.Conflict, "the session %q is stopped", s.id).WithHint("start it again; its files are there")
}

// Boot makes a session ready to run, also one that was halted: its machine is up
// when Boot returns, where its isolation has machines, and else an interpreter of
// its language.
func (m *Manager) Boot(ctx context.Context, owner Owner, id ID) error {
	s, t, err := m.takeTurn(ctx, owner, id, nil)
	if err != nil {
		return fmt.Errorf("waiting to start the session: %w", err)
	}
	defer s.turns.leave(t)
	if s.backend == nil {
		return s.backendErr
	}
	if err := s.reconcile(t.ctx); err != nil {
		return err
	}
	if err := s.residence.boot(t); err != nil {
		return err
	}
	return s.setHalted(false)
}

// Halt ends all that runs and lives in a session; nothing runs in it until it is
// booted. What its checkpoints hold is there then: its files, and variables where
// its isolation keeps them after each run. A machine is booted afresh.
func (m *Manager) Halt(ctx context.Context, owner Owner, id ID) error {
	s, t, err := m.takeTurn(ctx, owner, id, errHalted)
	if err != nil {
		return fmt.Errorf("waiting to stop the session: %w", err)
	}
	defer s.turns.leave(t)
	// What has begun is done whole, whoever hangs up.
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	if err = s.checkpoints.keepLast(ctx); err != nil {
		s.interpreters.discardUnsaved(ctx)
	}
	s.interpreters.dropAll()
	err = errors.Join(err, s.residence.forgetSaved(t.ctx))
	clear(s.lostReasons) // whoever stops it does not miss them
	s.mu.Lock()
	s.record.Unkept = nil
	s.mu.Unlock()
	return errors.Join(err, s.setHalted(true))
}

// setHalted says durably whether anything may run.
func (s *session) setHalted(halted bool) error {
	s.mu.Lock()
	same := s.record.Halted == halted
	s.record.Halted = halted
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.checkSettled()
}

// checkSettled writes what was changed of the record.
func (s *session) checkSettled() error {
	if err := s.write(true); err != nil {
		return unusable(err)
	}
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	s.index()
	return nil
}

// Configure changes the memory and the machine of a session in which nothing
// lives: it was halted, or never used. What else settings say is not looked at.
func (m *Manager) Configure(ctx context.Context, owner Owner, id ID, settings Settings) (Info, error) {
	s, t, err := m.takeTurn(ctx, owner, id, nil)
	if err != nil {
		return Info{}, fmt.Errorf("waiting to change the session: %w", err)
	}
	defer s.turns.leave(t)
	asked := Settings{Isolation: s.backendName(), MemoryBytes: settings.MemoryBytes, Machine: settings.Machine}
	if _, err := m.checkSettings(ctx, asked); err != nil {
		return Info{}, err
	}
	lives := s.interpreters.anyLives()
	s.mu.Lock()
	if !lives {
		s.record.Settings.MemoryBytes, s.record.Settings.Machine = settings.MemoryBytes, settings.Machine
	}
	s.mu.Unlock()
	if lives {
		return Info{}, fault.New(fault.Conflict, "the session %q is running", id).WithHint("stop it first")
	}
	s.residence.dropPrestarted() // it is as the settings were
	if err := s.checkSettled(); err != nil {
		return Info{}, err
	}
	return s.info()
}

// Usage is what a session takes.
type Usage struct {
	Disk   int64 // bytes of its files
	Memory int64 // bytes that its machine has now
	// CPU is the percentage of one processor that its machine took since it was
	// last asked, or since it was booted.
	CPU    float64
	Booted time.Time // zero: no machine runs
}

// Usage measures a session. It does not wake it, and waits for nothing.
func (m *Manager) Usage(ctx context.Context, owner Owner, id ID) (Usage, error) {
	i, err := m.Info(owner, id)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Disk: i.DiskBytes}
	s := m.sessions.get(key{owner, id})
	if s == nil {
		return u, nil
	}
	if <-s.opened; s.openErr != nil {
		return u, nil
	}
	return s.residence.usage(ctx, u.Disk), nil
}

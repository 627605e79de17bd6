package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
	"paddock/internal/sessionfile"
	"paddock/internal/workspace"
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

// possible tells whether there can be such a machine; what is wanted of one may come
// from an archive. Volumes and ports do not.
func possible(m *Machine) bool {
	return m == nil || m.CPUs >= 0 && m.CPUs <= maxCPUs && len(m.Image) <= maxImage && utf8.ValidString(m.Image)
}

// maxImage bounds the name of an image, in bytes: a registry's name, a path and a
// digest have fewer.
const maxImage = 1000

// hasMachines tells whether a backend gives each session a machine.
func hasMachines(b sandbox.Backend) bool {
	_, ok := b.(sandbox.Machines)
	return ok
}

// inMachine completes the description of an interpreter that shares the
// session's machine; machine nil: one as by default.
func (s *session) inMachine(spec *sandbox.Spec, machine *Machine) {
	spec.Box = string(s.id)
	if machine == nil {
		return
	}
	spec.Image, spec.CPUs = machine.Image, machine.CPUs
	maps.Copy(spec.Env, machine.Env)
	if len(machine.Scripts) > 0 {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Guest: ScriptsFolder, Host: filepath.Join(s.dir, scriptsFolder), ReadOnly: true})
	}
	for _, v := range machine.Volumes {
		// It is not counted: it is not a file of the session.
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Guest: v.Guest, Host: v.Host, ReadOnly: v.ReadOnly, DiskBytes: sandbox.Unbounded, NoLinks: true})
	}
}

// ScriptsFolder is where a machine has its scripts.
const ScriptsFolder = "/.sandbox_scripts"

// scriptsFolder is the folder of a session in which they lie.
const scriptsFolder = "scripts"

// makeScripts writes the machine's, which nobody has kept. The caller is alone with the
// session's folder.
func (s *session) makeScripts() error {
	s.mu.Lock()
	machine := s.record.Settings.Machine
	s.mu.Unlock()
	if machine == nil || len(machine.Scripts) == 0 {
		return nil
	}
	dir := filepath.Join(s.dir, scriptsFolder)
	if err := errors.Join(workspace.RemoveAll(dir), makeVisible(dir)); err != nil {
		return err
	}
	for name, text := range machine.Scripts {
		file := filepath.Join(dir, filepath.Base(name))
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o755), os.Chmod(file, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// memoryOf gives what an interpreter, or a machine, of a backend may take where
// nobody says, and the most that may be asked for; nil: a backend that is not here.
func (m *Manager) memoryOf(b sandbox.Backend) (usual, most int64) {
	if hasMachines(b) {
		return m.config.MachineMemoryBytes, m.config.MaxMachineMemoryBytes
	}
	return m.config.MemoryBytes, m.config.MemoryBytes
}

// filesOnly is why variables are gone where an interpreter is not kept after a run.
const filesOnly = "its isolation keeps only files in /workspace and /tmp, unless a checkpoint is asked for or the session sleeps"

// keepsNoVariables tells whether an interpreter holds what no checkpoint does, for as long
// as it lives.
func keepsNoVariables(runtime string, in sandbox.Instance) bool {
	return !keeps(in) && runtime != sandbox.CommandRuntime
}

// keeps tells whether an interpreter's state can be kept.
func keeps(in sandbox.Instance) bool {
	_, ok := in.(sandbox.Snapshotter)
	return ok
}

// unsavableRuntimes are the runtimes whose live interpreters are so.
func (s *session) unsavableRuntimes() (all []string) {
	for runtime, in := range s.live() {
		if keepsNoVariables(runtime, in) {
			all = append(all, runtime)
		}
	}
	slices.Sort(all)
	return all
}

// noteUnsaved has the record tell which variables would be gone if the session
// were opened again.
func (s *session) noteUnsaved() {
	if s.backend == nil {
		return // nothing lived; what there was to tell still is
	}
	all := s.unsavableRuntimes()
	s.checkpointMu.Lock()
	all = slices.DeleteFunc(all, s.repo.Head().Holds)
	s.checkpointMu.Unlock()
	for runtime := range s.lostReasons { // nobody was told yet
		if hasMachines(s.backend) && !slices.Contains(all, runtime) {
			all = append(all, runtime)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Unkept = all
}

// holder is whose memory an interpreter's is: the machine's, where there is one.
func (s *session) holder(runtime string) quota.Holder {
	if hasMachines(s.backend) {
		runtime = ""
	}
	return quota.Holder{Owner: string(s.owner), Session: string(s.id), Runtime: runtime}
}

// releaseMemory stops counting an interpreter that is gone; a machine counts
// until the last of its is.
func (s *session) releaseMemory(runtime string) {
	if hasMachines(s.backend) && len(s.live()) > 0 {
		s.manager.memory.Set(s.holder(runtime), s.memoryNow(1))
		return
	}
	s.manager.memory.Set(s.holder(runtime), 0)
}

// memoryNow is what counts after a run that ended with so many bytes in its
// interpreter: all of the machine's, where there is one.
func (s *session) memoryNow(interpreter int64) int64 {
	machines, ok := s.backend.(sandbox.Machines)
	if !ok {
		return interpreter
	}
	return max(machines.Memory(string(s.owner), string(s.id)), 1)
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
	defer s.leave(t)
	if s.backend == nil {
		return s.backendErr
	}
	if err := s.reconcile(t.ctx); err != nil {
		return err
	}
	r, err := s.commands()
	if err != nil {
		r, err = m.runtimeFor(t.ctx, s.backend, s.language())
	}
	if err == nil {
		_, err = s.interpreter(t, r)
	}
	if err != nil {
		return err
	}
	if hasMachines(s.backend) { // it runs nothing yet
		m.memory.Set(s.holder(r.Name), s.memoryNow(1))
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
	defer s.leave(t)
	// What has begun is done whole, whoever hangs up.
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	if err = s.lastKeep(ctx); err != nil {
		s.discardUnsaved(ctx)
	}
	s.dropAll()
	err = errors.Join(err, s.dropMachineState(t.ctx))
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
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
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
	defer s.leave(t)
	asked := Settings{Isolation: s.backendName(), MemoryBytes: settings.MemoryBytes, Machine: settings.Machine}
	if _, err := m.checkSettings(ctx, asked); err != nil {
		return Info{}, err
	}
	s.mu.Lock()
	lives := s.liveLocked()
	if !lives {
		s.record.Settings.MemoryBytes, s.record.Settings.Machine = settings.MemoryBytes, settings.Machine
	}
	s.mu.Unlock()
	if lives {
		return Info{}, fault.New(fault.Conflict, "the session %q is running", id).WithHint("stop it first")
	}
	s.dropPrestarted() // it is as the settings were
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
	m.mu.Lock()
	s := m.sessions[key{owner, id}]
	m.mu.Unlock()
	if s == nil {
		return u, nil
	}
	if <-s.opened; s.openErr != nil {
		return u, nil
	}
	machines, ok := s.backend.(sandbox.Machines)
	if !ok {
		return u, nil
	}
	at, err := machines.Machine(ctx, string(owner), string(id))
	now := time.Now()
	if err != nil {
		return u, nil // it is not booted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since, before := at.Booted, time.Duration(0)
	if s.metered.at.After(at.Booted) {
		since, before = s.metered.at, s.metered.cpu
	}
	if wall := now.Sub(since); wall > 0 {
		u.CPU = max(100*float64(at.CPU-before)/float64(wall), 0)
	}
	s.metered = metered{now, at.CPU}
	u.Memory, u.Booted = at.Memory, at.Booted
	return u, nil
}

// metered is what a machine had used when it was last measured.
type metered struct {
	at  time.Time
	cpu time.Duration
}

package session

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/loopback"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

var _ residence = (*machineResidence)(nil)

// machineResidence is where all interpreters of a session share one machine, with what else
// runs in it. The machine is booted with the first interpreter and ends with the last.
// Checkpoints after runs hold files only. All that lives is saved with the machine: when a
// checkpoint is asked for, when nothing has run for a while (idle.go), before the session
// sleeps and at a fork (savedmachine.go). How long a machine runs is in lifetime.go; machines
// that are booted ahead in warmpool.go; connections to its ports in dial.go and ports.go.
//
// It is a type of this package because it needs most of what a session has: turns,
// interpreters, checkpoints and notices.
//
// ports and prestarted belong to the first in the session's queue. mu is taken last.
type machineResidence struct {
	s            *session
	backend      sandbox.Backend
	machines     sandbox.Machines     // the backend
	machineSaver sandbox.MachineSaver // the backend; nil: it cannot save machines

	ports      *loopback.Ports // nil: none is open
	prestarted *prestarted     // that no program used yet; nil: there is none

	mu           sync.Mutex // guards what follows
	metered      metered    // what the machine had used when somebody last looked
	booted       time.Time  // when it began; zero: there is none
	unsavedSince time.Time  // when something last ran in it, and was not saved; zero: nothing did
}

func newMachineResidence(s *session, b sandbox.Backend, machines sandbox.Machines) *machineResidence {
	saver, _ := b.(sandbox.MachineSaver)
	return &machineResidence{s: s, backend: b, machines: machines, machineSaver: saver}
}

func (r *machineResidence) memoryLimits() (usual, most int64) {
	c := &r.s.manager.config
	return c.MachineMemoryBytes, c.MaxMachineMemoryBytes
}

func (r *machineResidence) checkMachine(asked *Machine) error {
	switch {
	case asked == nil:
		return nil
	case !possible(asked):
		return fault.New(fault.Invalid, "a machine has 0 to %d processors, and its image a name of at most %d bytes", maxCPUs, maxImage)
	case slices.ContainsFunc(asked.Ports, func(p Port) bool { return p.Guest == sandbox.ProxyPort }):
		return fault.New(fault.Invalid, "the port %d of a sandbox is the one through which its programs get out, and cannot be published", sandbox.ProxyPort).
			WithHint("have the program listen at another one")
	}
	return nil
}

func (r *machineResidence) commands() (sandbox.Runtime, error) {
	return sandbox.Runtime{Name: sandbox.CommandRuntime}, nil
}

func (r *machineResidence) keepsVariables() bool { return false }

// shows never shares a folder: those of a machine are there before anybody knows whose it is.
func (r *machineResidence) shows(Folder) (shown, shared bool) { return true, false }

// describe adds the machine that interpreters share, and the way out of it. The variables
// of the Config and of the session have precedence over those of the network.
func (r *machineResidence) describe(spec *sandbox.Spec, settings Settings) {
	spec.Box = string(r.s.id)
	if network := r.s.manager.config.Network; network != nil {
		if n := network.Machine(r.s.owner, r.s.id, settings); n != nil {
			spec.Proxy = n.Proxy
			for name, value := range n.Env {
				if _, set := r.s.manager.config.Env[name]; !set {
					spec.Env[name] = value
				}
			}
		}
	}
	machine := settings.Machine
	if machine == nil {
		return
	}
	spec.Image, spec.User, spec.CPUs = machine.Image, machine.User, machine.CPUs
	maps.Copy(spec.Env, machine.Env)
	if len(machine.Scripts) > 0 {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Guest: ScriptsFolder, Host: filepath.Join(r.s.dir, scriptsFolder), ReadOnly: true})
	}
	for _, v := range machine.Volumes {
		// It is not counted: it is not a file of the session.
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Guest: v.Guest, Host: v.Host, ReadOnly: v.ReadOnly, DiskBytes: sandbox.Unbounded, NoLinks: true})
	}
}

func (r *machineResidence) filesChanged() {
	r.machines.FilesChanged(string(r.s.owner), string(r.s.id))
}

// boot has the machine be up, and makes what it has count: nothing runs in it yet.
func (r *machineResidence) boot(t *turn) error {
	runtime, err := r.commands()
	if err == nil {
		_, err = r.s.interpreters.live(t, runtime)
	}
	if err != nil {
		return err
	}
	r.s.manager.memory.Set(r.holder(runtime.Name), r.memoryNow(1))
	return nil
}

// prepare opens the machine's ports.
func (r *machineResidence) prepare(ctx context.Context) error { return r.publish(ctx) }

// start starts an interpreter, and the machine with the first one: one that was booted
// ahead, else the one that was saved, else a new one.
func (r *machineResidence) start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	began := time.Now()
	in, err := r.startInMachine(ctx, spec)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	first := r.booted.IsZero()
	if first {
		r.booted = began
	}
	r.mu.Unlock()
	if first {
		r.s.manager.onMachineBooted()
	}
	return in, nil
}

func (r *machineResidence) startInMachine(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	s := r.s
	if in := r.usePrestarted(spec.Runtime); in != nil {
		if !s.hasSecrets() {
			return in, nil
		}
		// It was started without them. Its machine lasts as long as it does.
		own, err := s.interpreters.start(ctx, spec)
		if left := closeInstance(in); left != nil {
			s.manager.log.Warn("an interpreter did not close well", "session", s.id, "cause", fault.CauseOf(left))
		}
		return own, err
	}
	defer s.manager.pool.Starting()()
	if spec.Machine = r.savedState(); spec.Machine == nil {
		return s.interpreters.startResumed(ctx, spec)
	}
	in, err := s.interpreters.start(ctx, spec)
	if err == nil {
		r.adoptRestored(ctx, spec, in)
	}
	if !unresumable(err) {
		return in, err
	}
	s.manager.log.Warn("a machine's state cannot be gone on with", "session", s.id, "cause", fault.CauseOf(err))
	r.restoreFailed(fault.Of(err).Message)
	spec.Machine = nil
	return s.interpreters.startResumed(ctx, spec)
}

// comesBack counts what was saved of the machine: that is there again when the machine has
// ended as a whole.
func (r *machineResidence) comesBack(head *history.Manifest, runtime string) bool {
	if r.s.interpreters.count() > 0 {
		return false
	}
	_, there := head.Interpreters[runtime]
	return there || r.machineSaver != nil && head.Machine.Holds(runtime)
}

// holder is one for all interpreters: the machine.
func (r *machineResidence) holder(string) quota.Holder {
	return quota.Holder{Owner: string(r.s.owner), Session: string(r.s.id)}
}

// memoryNow is all of the machine's, whatever one interpreter has.
func (r *machineResidence) memoryNow(int64) int64 {
	return max(r.machines.Memory(string(r.s.owner), string(r.s.id)), 1)
}

// outlives is true while the machine is there for others.
func (r *machineResidence) outlives(othersLive bool) bool { return othersLive }

// suspends is also true where the program waits on in its machine, as that is saved.
func (r *machineResidence) suspends(in sandbox.Instance) bool { return keeps(in) || r.canSave() }

// beforeRestore ends the machine first: what its programs write meanwhile would be among
// the files.
func (r *machineResidence) beforeRestore(target *history.Manifest) (back map[string]history.Interpreter, notice string) {
	if target.Machine != nil && r.machineSaver != nil {
		back = target.Machine.Interpreters
	}
	return back, r.stop("its machine was stopped to go back to an earlier state, and "+onlyFilesIn(target), back)
}

// afterRestore has nothing to do: none lives, and what is lost has to be told.
func (r *machineResidence) afterRestore(context.Context, *history.Manifest, *history.Manifest) {}

// usage measures the machine since it was measured last.
func (r *machineResidence) usage(ctx context.Context, disk int64) Usage {
	u := Usage{Disk: disk}
	at, err := r.meter(ctx)
	now := time.Now()
	if err != nil {
		return u // it is not booted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	since, before := at.Booted, time.Duration(0)
	if r.metered.at.After(at.Booted) {
		since, before = r.metered.at, r.metered.cpu
	}
	if wall := now.Sub(since); wall > 0 {
		u.CPU = max(100*float64(at.CPU-before)/float64(wall), 0)
	}
	r.metered = metered{now, at.CPU}
	u.Memory, u.Booted = at.Memory, at.Booted
	return u
}

func (r *machineResidence) meter(ctx context.Context) (sandbox.MachineUsage, error) {
	return r.machines.Machine(ctx, string(r.s.owner), string(r.s.id))
}

// metered is what a machine had used when it was last measured.
type metered struct {
	at  time.Time
	cpu time.Duration
}

// makeScripts writes the scripts of a machine, which nobody has kept, into a session's folder.
// The caller is alone with that.
func makeScripts(home string, machine *Machine) error {
	if machine == nil || len(machine.Scripts) == 0 {
		return nil
	}
	dir := filepath.Join(home, scriptsFolder)
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

// machineSettings are what the session's machine is like; nil: as by default.
func (r *machineResidence) machineSettings() *Machine {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.record.Settings.Machine
}

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/ipc"
	"paddock/internal/sandbox"
)

// backgroundCheckTime bounds how long a machine may take to tell what runs in it.
const backgroundCheckTime = 2 * time.Second

// Process is one that a program left running in its session's machine.
type Process struct {
	sandbox.Process
	// Runtime is the interpreter whose program started it: "command" for commands,
	// empty where nobody can tell.
	Runtime string
}

// Printed is the end of what the programs of one interpreter printed while no
// call was going on, in the background.
type Printed struct {
	Runtime string
	sandbox.Printed
}

// Processes lists what works in the background of a session, the oldest first. It
// waits for no program, and wakes no session: in one that is asleep nothing works.
func (m *Manager) Processes(ctx context.Context, owner Owner, id ID) (all []Process, err error) {
	err = m.withProcesses(ctx, owner, id, ipcRequest{Op: opProcesses}, func(s *session) (err error) {
		all, err = s.interpreters.processes(ctx)
		return err
	}, func(a ipcResponse) { all = a.Processes })
	return all, err
}

// Signal sends a signal, by its name, to one of a session's processes.
func (m *Manager) Signal(ctx context.Context, owner Owner, id ID, pid int, signal string) error {
	return m.withProcesses(ctx, owner, id, ipcRequest{Op: opSignal, PID: pid, Signal: signal}, func(s *session) error {
		return s.interpreters.signal(ctx, pid, signal)
	}, func(ipcResponse) {})
}

// Printed gives what a session's programs printed in the background, by runtime.
func (m *Manager) Printed(ctx context.Context, owner Owner, id ID) (all []Printed, err error) {
	err = m.withProcesses(ctx, owner, id, ipcRequest{Op: opPrinted}, func(s *session) (err error) {
		all, err = s.interpreters.printed(ctx)
		return err
	}, func(a ipcResponse) { all = a.Printed })
	return all, err
}

// withProcesses does something about the processes of a session: here when it is open
// here; by asking the process that has it; and not at all where it is asleep.
func (m *Manager) withProcesses(ctx context.Context, owner Owner, id ID, q ipcRequest, here func(*session) error, there func(ipcResponse)) error {
	if err := id.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ipc.Timeout)
	defer cancel()
	k := key{owner, id}
	if m.sessions.get(k) != nil {
		s, done, err := m.use(owner, id)
		if err != nil {
			return err
		}
		defer done()
		return here(s)
	}
	r, err := m.records.read(k)
	awake := r.Process != 0 && m.store.Held(k.stored())
	switch {
	case err != nil:
		return err
	case !awake && q.Op == opSignal:
		return errNoProcess(q.PID)
	case !awake:
		return nil
	}
	q.Owner, q.ID = owner, id
	a, err := m.peers.ask(ctx, r, q)
	if err == nil {
		there(a)
	}
	return err
}

// errNoProcess says that there is none.
func errNoProcess(pid int) error {
	return fault.New(fault.NotFound, "there is no process %d in the session", pid).WithHint("it may have ended; list the processes again")
}

// processes asks the machine. Whatever one interpreter does not know, another may.
func (i *instances) processes(ctx context.Context) ([]Process, error) {
	ctx, cancel := context.WithTimeout(ctx, backgroundCheckTime)
	defer cancel()
	var all []Process
	var errs []error
	for runtime, o := range i.processManagers() {
		list, err := guard("listing processes", func() ([]sandbox.Process, error) { return o.Processes(ctx) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range list {
			if !p.Detached {
				all = append(all, Process{p, runtime})
			} else if !slices.ContainsFunc(all, func(other Process) bool { return other.PID == p.PID }) {
				all = append(all, Process{p, ""}) // each of them tells of it
			}
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID)) })
	return all, errors.Join(errs...)
}

func (i *instances) signal(ctx context.Context, pid int, signal string) error {
	for _, o := range i.processManagers() {
		_, err := guard("signalling", func() (struct{}, error) { return struct{}{}, o.Signal(ctx, pid, signal) })
		if fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return errNoProcess(pid)
}

func (i *instances) printed(ctx context.Context) ([]Printed, error) {
	var all []Printed
	var errs []error
	for runtime, o := range i.processManagers() {
		p, err := guard("reading", func() (sandbox.Printed, error) { return o.Printed(ctx, 0) })
		if err != nil {
			errs = append(errs, err)
		} else if len(p.Data) > 0 {
			all = append(all, Printed{runtime, p})
		}
	}
	slices.SortFunc(all, func(a, b Printed) int { return cmp.Compare(a.Runtime, b.Runtime) })
	return all, errors.Join(errs...)
}

// noteStoppedProcesses has the next result name the processes that are about to be
// stopped; what is said before that.
func (s *session) noteStoppedProcesses(what string) {
	if names := s.interpreters.nameProcesses(); names != "" {
		s.addNotice(what + ": processes in the background were stopped (" + names + ").")
	}
}

// mostNamed is how many processes a notice names.
const mostNamed = 5

// nameProcesses names what works in the background; "" where nothing does.
func (i *interpreters) nameProcesses() string {
	all := i.background(context.Background())
	var names []string
	for _, p := range all[:min(len(all), mostNamed)] {
		name := p.Command
		if len(name) > 60 {
			name = strings.ToValidUTF8(name[:60], "") + "…"
		}
		names = append(names, name)
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(names) == 0 {
		return ""
	}
	return enumerate(names)
}

// processManagers are the live interpreters that can tell of processes, by runtime. Those
// of machines can.
func (i *instances) processManagers() map[string]sandbox.ProcessManager {
	all := map[string]sandbox.ProcessManager{}
	for runtime, in := range i.list() {
		if o, ok := in.(sandbox.ProcessManager); ok {
			if !hasEnded(in) {
				all[runtime] = o
			}
		}
	}
	return all
}

// background lists what works in the background of a machine, as far as it answers in
// time. It waits for no program.
func (i *interpreters) background(ctx context.Context) []Process {
	s := i.s
	all, err := i.processes(ctx)
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		s.manager.log.Debug("a machine does not tell what runs in it", "session", s.id, "cause", fault.CauseOf(err))
	}
	return all
}

// mostPrinted is how much of what was printed in the background Details tell, in
// bytes.
const mostPrinted = 4 << 10

// inspectProcesses fills in what works in the background of the session.
func (i *interpreters) inspectProcesses(ctx context.Context, d *Details) {
	d.Processes = i.background(ctx)
	ctx, cancel := context.WithTimeout(ctx, backgroundCheckTime)
	defer cancel()
	all, _ := i.printed(ctx) // what does not tell is left out, as with variables
	var texts []string
	for _, p := range all {
		data := p.Data[max(0, len(p.Data)-mostPrinted/len(all)):]
		texts = append(texts, strings.ToValidUTF8(string(data), "\uFFFD"))
	}
	d.Printed = strings.Join(texts, "\n")
}

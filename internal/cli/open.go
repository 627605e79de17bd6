package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/signal"
	"syscall"
	"time"

	"paddock/internal/audit"
	"paddock/internal/cli/config"
	"paddock/internal/helper"
	"paddock/internal/limit"
	"paddock/internal/membudget"
	"paddock/internal/microsandbox"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
)

// preparer is a backend that has something to make once for each machine.
type preparer interface{ Prepare(context.Context) error }

// parts are the backends, the sessions that run in them, and what observes them.
type parts struct {
	backends  backends
	life      *session.Life
	sessions  *session.Manager
	sandboxes *microsandbox.Service
	bindings  *bindings
	packages  *pkgproxy.Packages // nil: nobody has said where those come from
	network   *network
	given     *sessionSecrets
	approvals *approvals
	previews  *previews
	skills    *skillStore
	audit     *audit.Log
	telemetry *telemetry.Telemetry
	gate      *limit.Gate // of requests and executions
	memory    *membudget.Budget
	helpers   *helper.Runner
	log       *slog.Logger
}

// open joins the parts as the configuration says, after change (nil: nothing)
// has had its say. They end with close, also where only some of them came to be.
func (p *program) open(change func(*session.Config)) (_ *parts, err error) {
	// A reader that goes away is an error of ours to handle, not a signal to die
	// from: sessions are let go of first.
	signal.Ignore(syscall.SIGPIPE)
	o := &parts{log: p.log}
	defer func() {
		if err != nil {
			o.close(p.log)
		}
	}()
	o.memory = newMemory(limit.MachineMemory())
	if o.helpers, err = newHelpers(); err != nil {
		return nil, err
	}
	if o.gate, err = newGate(p.config); err != nil {
		return nil, err
	}
	if o.telemetry, err = p.openTelemetry(context.Background()); err != nil {
		return nil, fmt.Errorf("opening telemetry: %w", err)
	}
	o.audit = p.openAudit(o.telemetry)
	o.approvals = p.newApprovals(o.audit)
	if o.life, err = session.NewLife(p.places.state); err != nil {
		return nil, err
	}
	if o.backends, err = p.newBackends(p.places, p.config, o.life, p.log); err != nil {
		return nil, fmt.Errorf("making the backends: %w", err)
	}
	sc := p.sessionConfig(o)
	if o.bindings, err = p.openBindings(&sc, o); err != nil {
		return nil, err
	}
	if o.packages, err = p.openPackages(o.memory, o.helpers); err != nil {
		return nil, err
	}
	if o.network, err = p.openNetwork(&sc, o); err != nil {
		return nil, err
	}
	o.given = p.openSecrets(&sc, o.network, o.audit)
	o.bindings.journal.clean = o.given.clean
	if o.skills, err = p.newSkills(o.helpers); err != nil {
		return nil, err
	}
	o.skills.join(p, &sc)
	o.previews = p.newPreviews()
	o.previews.join(&sc)
	if change != nil {
		change(&sc)
	}
	share(&sc, p.config, o.gate)
	sc.Admit = counted(sc.Admit, o.telemetry)
	if o.sessions, err = session.New(sc); err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	o.bindings.sessions, o.network.sessions, o.given.sessions = o.sessions, o.sessions, o.sessions
	if p.transport != "" { // what serves lasts
		o.given.begin()
	}
	o.sandboxes = microsandbox.New(microsandbox.Config{Sessions: o.sessions, Volumes: p.config.Sandbox.Volumes, Namespaces: namespacesOf})
	if err := o.telemetry.Observe(func() telemetry.Live { return live(o.sessions.Stats(), o.gate.Load()) }); err != nil {
		p.log.Warn("live gauges are unavailable", "cause", err)
	}
	return o, nil
}

// sessionConfig is what the configuration says of sessions, with what observes them.
func (p *program) sessionConfig(o *parts) session.Config {
	c := p.config
	sc := session.Config{
		Dir: p.places.state, Backends: o.backends,
		Cwd: c.Sessions.Cwd, DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, IdleTTL: c.Sessions.IdleTTL,
		MaxPerOwner: int(c.Sessions.MaxPerClient), MaxStored: int(c.Sessions.MaxStored), Checkpoints: int(c.Sessions.MaxCheckpoints),
		SleepAfter: time.Duration(c.Sessions.SleepAfter) * time.Second, AsyncCheckpoint: c.Sessions.Checkpoint == config.AfterAnswer, MemoryBytes: c.Memory(), DiskBytes: c.Sessions.DiskBytes,
		Limits: sandbox.RunLimits{Fuel: uint64(c.Policy.Fuel), StdoutBytes: c.Policy.StdoutBytes, StderrBytes: c.Policy.StderrBytes},
		Env:    maps.Clone(c.Policy.Env), Log: p.log, Record: observer(o.audit, o.telemetry), Tracer: o.telemetry.Tracer(), Life: o.life,
	}
	sc.MachineMemoryBytes, sc.MaxMachineMemoryBytes = c.MachineMemory()
	sc.MaxLifetime = time.Duration(c.Sandbox.MaxLifetime) * time.Second
	sc.SaveAfter, sc.MachineStateBytes = time.Duration(c.Sandbox.SaveAfter)*time.Second, c.Sandbox.StateBytes
	if sc.SaveAfter == 0 {
		sc.SaveAfter = -1
	}
	if sc.MachineStateBytes == 0 {
		sc.MachineStateBytes = -1
	}
	if sc.SleepAfter == 0 {
		sc.SleepAfter = -1 // until its place is needed
	}
	if p.transport != "" { // it serves: what runs one program will make no more sessions
		sc.Pool = int(c.Sandbox.Pool)
	}
	return sc
}

// close ends what runs and waits for it: first who uses others, then what is used.
func (o *parts) close(log *slog.Logger) {
	closing := func(there bool, part interface{ Close() error }) {
		if !there {
			return // opening did not come so far
		}
		if err := part.Close(); err != nil {
			log.Warn("closing a part failed", "cause", err)
		}
	}
	closing(o.given != nil, o.given) // it asks what sessions are
	closing(o.sessions != nil, o.sessions)
	closing(o.network != nil, o.network)
	closing(o.packages != nil, o.packages)
	closing(o.bindings != nil, o.bindings)
	closing(o.skills != nil, o.skills)
	closing(o.backends != nil, o.backends)
	closing(o.life != nil, o.life)
	closing(o.audit != nil, o.audit)
	closing(o.telemetry != nil, o.telemetry)
}

// quietTime is how long a person waits without being told why.
const quietTime = 300 * time.Millisecond

// prepare makes what the backends need on this machine. The first time that
// takes seconds, and a terminal is told so.
func (p *program) prepare(ctx context.Context, all backends) error {
	var work []preparer
	for _, b := range all {
		if w, ok := b.(preparer); ok {
			work = append(work, w)
		}
	}
	if len(work) == 0 {
		return nil
	}
	if terminal(p.stderr) {
		notice := time.AfterFunc(quietTime, func() {
			fmt.Fprintln(p.stderr, "paddock: compiling the interpreters for this machine, once; it takes some seconds")
		})
		defer notice.Stop()
	}
	for _, w := range work {
		if err := w.Prepare(ctx); err != nil {
			return fmt.Errorf("preparing the interpreters: %w", err)
		}
	}
	return nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/signal"
	"syscall"
	"time"

	"paddock/internal/audit"
	"paddock/internal/cli/config"
	"paddock/internal/limit"
	"paddock/internal/microsandbox"
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
	approvals *approvals
	skills    *skillStore
	audit     *audit.Log
	telemetry *telemetry.Telemetry
	gate      *limit.Gate // of requests and executions
	log       *slog.Logger
}

// open joins the parts as the configuration says, after change (nil: nothing)
// has had its say. They end with close.
func (p *program) open(change func(*session.Config)) (*parts, error) {
	// A reader that goes away is an error of ours to handle, not a signal to die
	// from: sessions are let go of first.
	signal.Ignore(syscall.SIGPIPE)
	gate, err := newGate(p.config)
	if err != nil {
		return nil, err
	}
	t, err := p.openTelemetry(context.Background())
	if err != nil {
		return nil, fmt.Errorf("opening telemetry: %w", err)
	}
	log := p.openAudit(t)
	waiting := p.newApprovals(log)
	life, err := session.NewLife(p.places.state)
	if err != nil {
		_ = t.Close() // there was nothing to send
		return nil, err
	}
	var all backends
	if all, err = p.newBackends(p.places, p.config, life, p.log); err != nil {
		_ = errors.Join(t.Close(), life.Close()) // there was nothing to send
		return nil, fmt.Errorf("making the backends: %w", err)
	}
	c := p.config
	sc := session.Config{
		Dir: p.places.state, Backends: all,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, IdleTTL: c.Sessions.IdleTTL,
		MaxPerOwner: int(c.Sessions.MaxPerClient), MaxStored: int(c.Sessions.MaxStored), Checkpoints: int(c.Sessions.MaxCheckpoints),
		SleepAfter: time.Duration(c.Sessions.SleepAfter) * time.Second, KeepLater: c.Sessions.Checkpoint == config.AfterAnswer, MemoryBytes: c.Memory(), DiskBytes: c.Sessions.DiskBytes,
		Limits: sandbox.RunLimits{Fuel: uint64(c.Policy.Fuel), StdoutBytes: c.Policy.StdoutBytes, StderrBytes: c.Policy.StderrBytes},
		Env:    maps.Clone(c.Policy.Env), Log: p.log, Record: observer(log, t), Tracer: t.Tracer(), Life: life,
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
	servers, err := p.openBindings(&sc, waiting, log, t)
	if err != nil {
		_ = errors.Join(all.Close(), t.Close(), life.Close())
		return nil, err
	}
	skills, err := p.newSkills()
	if err != nil {
		_ = errors.Join(servers.Close(), all.Close(), t.Close(), life.Close())
		return nil, err
	}
	skills.join(p, &sc)
	if change != nil {
		change(&sc)
	}
	share(&sc, c, gate)
	sc.Admit = counted(sc.Admit, t)
	m, err := session.New(sc)
	if err != nil {
		_ = errors.Join(servers.Close(), all.Close(), t.Close(), life.Close())
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	servers.sessions = m
	if err := t.Observe(func() telemetry.Live { return live(m.Stats(), gate.Load()) }); err != nil {
		p.log.Warn("what lives is not measured", "cause", err)
	}
	return &parts{backends: all, life: life, sessions: m, bindings: servers, skills: skills, approvals: waiting, sandboxes: microsandbox.New(microsandbox.Config{Sessions: m, Volumes: c.Sandbox.Volumes, Namespaces: namespacesOf}), audit: log, telemetry: t, gate: gate, log: p.log}, nil
}

// close ends what runs and waits for it.
func (o *parts) close(log *slog.Logger) {
	for _, part := range []interface{ Close() error }{o.sessions, o.bindings, o.skills, o.backends, o.life, o.audit, o.telemetry} {
		if err := part.Close(); err != nil {
			log.Warn("a part was not closed cleanly", "cause", err)
		}
	}
}

// patience is how long a person waits without being told why.
const patience = 300 * time.Millisecond

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
		notice := time.AfterFunc(patience, func() {
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

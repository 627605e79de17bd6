package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/signal"
	"syscall"
	"time"

	"paddock/internal/audit"
	"paddock/internal/config"
	"paddock/internal/helper"
	"paddock/internal/limit"
	"paddock/internal/membudget"
	"paddock/internal/microsandbox"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/typescript"
	"paddock/internal/session"
	"paddock/internal/skill"
	"paddock/internal/telemetry"
)

// App is all of paddock's parts, joined. It is safe for concurrent use.
type App struct {
	*base
	Sessions *session.Manager

	joined
	sandboxes *microsandbox.Service
}

// base is the parts that do not know sessions. It is whole when openBase returns it, so a
// method of it finds each of them.
type base struct {
	*Env
	Backends Backends
	Audit    *audit.Log
	Helpers  *helper.Runner

	life      *session.Life
	packages  *pkgproxy.Packages // nil: programs install none
	approvals *approvals
	previews  *previews
	skills    *Skills
	telemetry *telemetry.Telemetry
	gate      gate // of requests and executions
	memory    *membudget.Budget
}

// joined is the parts that look at sessions, and are joined to them.
type joined struct {
	secrets *sessionSecrets
	network *network
	tools   *tools
}

// Options are how an App differs from what its configuration says.
type Options struct {
	// Change has the last word about the sessions' configuration; nil changes nothing.
	Change func(*session.Config)
	// Declared, when set, lets programs call only the tools that this manifest declares.
	Declared *skill.Manifest
}

// Open joins the parts as the configuration says. Close ends them; after an error they have
// ended already.
func (env *Env) Open(with Options) (_ *App, err error) {
	// A reader that goes away is an error of ours to handle, not a signal to die
	// from: sessions are closed first.
	signal.Ignore(syscall.SIGPIPE)
	b, err := env.openBase()
	if err != nil {
		return nil, err
	}
	a := &App{base: b}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	sc := b.sessionConfig()
	sc.Surround = func(m *session.Manager) (session.Surroundings, error) {
		var err error
		if a.joined, err = b.join(m); err != nil {
			return session.Surroundings{}, err
		}
		return b.surroundings(a.joined, with.Declared), nil
	}
	if with.Change != nil {
		with.Change(&sc)
	}
	if a.Sessions, err = session.New(sc); err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	if env.serves() {
		a.secrets.begin()
	}
	a.sandboxes = microsandbox.New(microsandbox.Config{
		Sessions: a.Sessions, Volumes: env.Config.Sandbox.Volumes, Namespaces: namespacesOf,
	})
	if err := a.telemetry.Observe(func() telemetry.Live { return live(a.Sessions.Stats(), a.gate.Load()) }); err != nil {
		env.Log.Warn("live gauges are unavailable", "cause", err)
	}
	return a, nil
}

// openBase opens the parts that do not know sessions. Each is made of what it is given,
// never of the half-made base.
func (env *Env) openBase() (_ *base, err error) {
	b := &base{Env: env}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	memory := newMemory(limit.MachineMemory())
	helpers, err := newHelpers()
	if err != nil {
		return nil, err
	}
	b.Helpers = helpers
	shares, err := newGate(env.Config)
	if err != nil {
		return nil, err
	}
	metrics, err := env.openTelemetry(context.Background())
	if err != nil {
		return nil, fmt.Errorf("opening telemetry: %w", err)
	}
	b.telemetry = metrics
	log := env.openAudit(metrics)
	b.Audit = log
	life, err := session.NewLife(env.StateDir)
	if err != nil {
		return nil, err
	}
	b.life = life
	if b.Backends, err = env.newBackends(life, typescript.NewTranslator(helpers)); err != nil {
		return nil, fmt.Errorf("making the backends: %w", err)
	}
	if b.packages, err = env.openPackages(memory, helpers); err != nil {
		return nil, err
	}
	if b.skills, err = env.NewSkills(helpers); err != nil {
		return nil, err
	}
	b.memory, b.gate = memory, shares
	b.approvals, b.previews = env.newApprovals(log), env.newPreviews()
	return b, nil
}

// join makes the parts that look at sessions. After an error it gives those that it made.
func (b *base) join(sessions *session.Manager) (j joined, err error) {
	allowed, err := parseOperatorPolicy(b.Config.Network.Allow)
	if err != nil {
		return j, err // config has checked it
	}
	j.secrets = b.newSessionSecrets(sessions, allowed.policy)
	j.network = b.newNetwork(sessions, j.secrets, allowed)
	j.tools, err = b.newTools(sessions, j.secrets.Clean)
	return j, err
}

// surroundings is what sessions' programs reach through the parts.
func (b *base) surroundings(j joined, declared *skill.Manifest) session.Surroundings {
	return session.Surroundings{
		Tools: newHostCalls(j.tools, j.network, j.secrets, declared), Network: j.network, Secrets: j.secrets,
		// The recorder is the last that can keep a program from running.
		Observers: []session.Observer{b.skills, j.tools, j.secrets, b.previews, session.RecordFunc(b.record)},
		Folders:   []session.Folder{j.tools.folder(), j.network.folder(), b.skills.folder()},
	}
}

// sessionConfig is what the configuration says of sessions.
func (b *base) sessionConfig() session.Config {
	c := b.Config
	sc := session.Config{
		Dir: b.StateDir, Backends: b.Backends, Cwd: c.Sessions.Cwd,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, IdleTTL: c.Sessions.IdleTTL,
		MaxPerOwner: int(c.Sessions.MaxPerClient), MaxStored: int(c.Sessions.MaxStored), Checkpoints: int(c.Sessions.MaxCheckpoints),
		AsyncCheckpoint: c.Sessions.Checkpoint == config.AfterAnswer, DropOutput: !c.Sessions.KeepOutput,
		MemoryBytes: c.Memory(), DiskBytes: c.Sessions.DiskBytes,
		Limits: sandbox.RunLimits{Fuel: uint64(c.Policy.Fuel), StdoutBytes: c.Policy.StdoutBytes, StderrBytes: c.Policy.StderrBytes},
		Env:    maps.Clone(c.Policy.Env), Log: b.Log, Tracer: b.telemetry.Tracer(), Life: b.life, AnswersAlways: true,
		MaxLifetime: time.Duration(c.Sandbox.MaxLifetime) * time.Second,
		// Zero in the configuration is never, and there the default.
		SleepAfter:        orNever(time.Duration(c.Sessions.SleepAfter) * time.Second),
		SaveAfter:         orNever(time.Duration(c.Sandbox.SaveAfter) * time.Second),
		MachineStateBytes: orNever(c.Sandbox.StateBytes),
	}
	sc.MachineMemoryBytes, sc.MaxMachineMemoryBytes = c.MachineMemory()
	if b.serves() { // what runs one program will make no more sessions
		sc.Pool = int(c.Sandbox.Pool)
	}
	share(&sc, c)
	sc.Admit = b.admitRun
	return sc
}

// orNever turns the configuration's zero, which means never, into session's, which is
// negative.
func orNever[N ~int64](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// Close ends the running sessions and waits for them. A part closes before those that it
// uses.
func (a *App) Close() {
	closePart(a.Log, a.secrets) // it asks for sessions
	closePart(a.Log, a.Sessions)
	closePart(a.Log, a.network)
	closePart(a.Log, a.tools)
	a.base.close()
}

func (b *base) close() {
	closePart(b.Log, b.packages)
	closePart(b.Log, b.skills)
	if b.Backends != nil {
		if err := b.Backends.Close(); err != nil {
			b.Log.Warn("closing a part failed", "cause", err)
		}
	}
	closePart(b.Log, b.Helpers)
	closePart(b.Log, b.life)
	closePart(b.Log, b.Audit)
	closePart(b.Log, b.telemetry)
}

// closePart closes a part, or does nothing where opening did not get that far (nil).
func closePart[T any, P interface {
	*T
	Close() error
}](log *slog.Logger, part P) {
	if part == nil {
		return
	}
	if err := part.Close(); err != nil {
		log.Warn("closing a part failed", "cause", err)
	}
}

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
	"paddock/internal/session"
	"paddock/internal/skill"
	"paddock/internal/telemetry"
)

// App is all of paddock's parts, joined. It is safe for concurrent use.
type App struct {
	*Env
	Backends Backends
	Sessions *session.Manager
	Audit    *audit.Log
	Helpers  *helper.Runner

	life      *session.Life
	sandboxes *microsandbox.Service
	tools     *tools
	packages  *pkgproxy.Packages // nil: nobody has said where those come from
	network   *network
	secrets   *sessionSecrets
	approvals *approvals
	previews  *previews
	skills    *Skills
	telemetry *telemetry.Telemetry
	gate      *limit.Gate // of requests and executions
	memory    *membudget.Budget
}

// Options are how an App is other than its configuration says.
type Options struct {
	// Change has the last word about what the configuration says of sessions; nil: nobody
	// has.
	Change func(*session.Config)
	// Declared, when set, has programs call no tools but those that it declares.
	Declared *skill.Manifest
}

// Open joins the parts as the configuration says. They end with Close; where this fails,
// those that came to be have ended.
func (env *Env) Open(with Options) (_ *App, err error) {
	// A reader that goes away is an error of ours to handle, not a signal to die
	// from: sessions are closed first.
	signal.Ignore(syscall.SIGPIPE)
	a := &App{Env: env, memory: newMemory(limit.MachineMemory())}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if a.Helpers, err = newHelpers(); err != nil {
		return nil, err
	}
	if a.gate, err = newGate(env.Config); err != nil {
		return nil, err
	}
	if a.telemetry, err = env.openTelemetry(context.Background()); err != nil {
		return nil, fmt.Errorf("opening telemetry: %w", err)
	}
	a.Audit = env.openAudit(a.telemetry)
	a.approvals = env.newApprovals(a.Audit)
	if a.life, err = session.NewLife(env.StateDir); err != nil {
		return nil, err
	}
	if a.Backends, err = env.newBackends(a.life); err != nil {
		return nil, fmt.Errorf("making the backends: %w", err)
	}
	if a.packages, err = env.openPackages(a.memory, a.Helpers); err != nil {
		return nil, err
	}
	if a.skills, err = env.NewSkills(a.Helpers); err != nil {
		return nil, err
	}
	a.previews = env.newPreviews()
	sc := a.sessionConfig()
	sc.Surround = func(m *session.Manager) (session.Surroundings, error) { return a.surround(m, with.Declared) }
	if with.Change != nil {
		with.Change(&sc)
	}
	if a.Sessions, err = session.New(sc); err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	if env.serves() {
		a.secrets.begin()
	}
	a.sandboxes = microsandbox.New(microsandbox.Config{Sessions: a.Sessions, Volumes: env.Config.Sandbox.Volumes, Namespaces: namespacesOf})
	if err := a.telemetry.Observe(func() telemetry.Live { return live(a.Sessions.Stats(), a.gate.Load()) }); err != nil {
		env.Log.Warn("live gauges are unavailable", "cause", err)
	}
	return a, nil
}

// surround makes the parts that look at sessions, and joins them to these.
func (a *App) surround(sessions *session.Manager, declared *skill.Manifest) (s session.Surroundings, err error) {
	allowed, err := operatorOf(a.Config.Network.Allow)
	if err != nil {
		return s, err // config has looked at it
	}
	a.secrets = a.newSessionSecrets(sessions, allowed.policy)
	a.network = a.newNetwork(sessions, allowed)
	if a.tools, err = a.newTools(sessions); err != nil {
		return s, err
	}
	return session.Surroundings{
		Tools: newHostCalls(a.tools, a.network, a.secrets, declared), Network: a.network, Secrets: a.secrets,
		// The recorder is the last that can keep a program from running.
		Observers: []session.Observer{a.skills, a.tools, a.secrets, a.previews, session.RecordFunc(a.record)},
		Folders:   []session.Folder{a.tools.folder(), a.network.folder(), a.skills.folder()},
	}, nil
}

// sessionConfig is what the configuration says of sessions.
func (a *App) sessionConfig() session.Config {
	c := a.Config
	sc := session.Config{
		Dir: a.StateDir, Backends: a.Backends, Cwd: c.Sessions.Cwd,
		DefaultTimeout: c.Sessions.DefaultTimeout, MaxTimeout: c.Sessions.MaxTimeout, IdleTTL: c.Sessions.IdleTTL,
		MaxPerOwner: int(c.Sessions.MaxPerClient), MaxStored: int(c.Sessions.MaxStored), Checkpoints: int(c.Sessions.MaxCheckpoints),
		AsyncCheckpoint: c.Sessions.Checkpoint == config.AfterAnswer,
		MemoryBytes:     c.Memory(), DiskBytes: c.Sessions.DiskBytes,
		Limits: sandbox.RunLimits{Fuel: uint64(c.Policy.Fuel), StdoutBytes: c.Policy.StdoutBytes, StderrBytes: c.Policy.StderrBytes},
		Env:    maps.Clone(c.Policy.Env), Log: a.Log, Tracer: a.telemetry.Tracer(), Life: a.life,
		MaxLifetime: time.Duration(c.Sandbox.MaxLifetime) * time.Second,
		// Zero in the configuration is never, and there the default.
		SleepAfter:        orNever(time.Duration(c.Sessions.SleepAfter) * time.Second),
		SaveAfter:         orNever(time.Duration(c.Sandbox.SaveAfter) * time.Second),
		MachineStateBytes: orNever(c.Sandbox.StateBytes),
	}
	sc.MachineMemoryBytes, sc.MaxMachineMemoryBytes = c.MachineMemory()
	if a.serves() { // what runs one program will make no more sessions
		sc.Pool = int(c.Sandbox.Pool)
	}
	share(&sc, c)
	sc.Admit = a.admitRun
	return sc
}

// orNever is n, or where that is zero below it.
func orNever[N ~int64](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// Close ends what runs and waits for it: first what uses others, then what is used.
func (a *App) Close() {
	closePart(a.Log, a.secrets) // it asks what sessions are
	closePart(a.Log, a.Sessions)
	closePart(a.Log, a.network)
	closePart(a.Log, a.packages)
	closePart(a.Log, a.tools)
	closePart(a.Log, a.skills)
	if a.Backends != nil {
		if err := a.Backends.Close(); err != nil {
			a.Log.Warn("closing a part failed", "cause", err)
		}
	}
	closePart(a.Log, a.life)
	closePart(a.Log, a.Audit)
	closePart(a.Log, a.telemetry)
}

// closePart closes a part; nil: opening did not come so far.
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

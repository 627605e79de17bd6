// Package microsandbox gives sessions the shape that microsandbox's users know:
// named sandboxes in namespaces, that are started with an image, run code and
// commands, are measured and stopped. Its MCP tools are in package mcpserver; its
// JSON-RPC is [RPC].
//
// A sandbox is a session of the isolation linux whose id follows from its name, so
// everything that holds for sessions holds for it: it is its owner's alone, its
// files stay when it is stopped, and idle ones leave memory by themselves.
package microsandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Isolation is what every sandbox has.
const Isolation = "linux"

// AllNamespaces asks [Service.Metrics] for the sandboxes of all of them.
const AllNamespaces = "*"

// Config sets a Service up.
type Config struct {
	Sessions *session.Manager
	// Volumes are the folders of this machine that sandboxes may be given, with
	// what is in them; none: no volumes.
	Volumes []string
	// Namespaces are those that whoever calls may use; it gives nil for all. A nil
	// Namespaces does so, too.
	Namespaces func(context.Context) []string
}

// Service starts, runs and stops sandboxes. It is safe for concurrent use.
type Service struct {
	sessions *session.Manager
	volumes  []string
	reach    func(context.Context) []string
	changes  turns // of who starts and stops a sandbox
}

// New makes a Service. Folders among the volumes that are not there are refused
// when somebody asks for them.
func New(c Config) *Service {
	if c.Namespaces == nil {
		c.Namespaces = func(context.Context) []string { return nil }
	}
	return &Service{sessions: c.Sessions, volumes: slices.Clone(c.Volumes), reach: c.Namespaces}
}

// reaches tells whether whoever calls may use a namespace.
func (s *Service) reaches(ctx context.Context, namespace string) bool {
	all := s.reach(ctx)
	return all == nil || slices.Contains(all, namespace)
}

// check refuses a name that cannot be one, or that whoever calls may not use.
func (s *Service) check(ctx context.Context, name Name) error {
	if err := name.check(); err != nil {
		return err
	}
	if !s.reaches(ctx, name.Namespace) {
		return fault.New(fault.Denied, "the namespace %q may not be used with this token", name.Namespace).
			WithHint("it may use %s", strings.Join(s.reach(ctx), ", "))
	}
	return nil
}

// Name is what a sandbox is called; it is unique for its owner.
type Name struct{ Namespace, Sandbox string }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func (n Name) check() error {
	switch {
	case !namePattern.MatchString(n.Sandbox):
		return badName("sandbox")
	case !namePattern.MatchString(n.Namespace):
		return badName("namespace")
	}
	return nil
}

func badName(what string) error {
	return fault.New(fault.Invalid, "the name of a %s has 1 to 63 letters, digits, - and _, and begins with a letter or digit", what)
}

// idPrefix begins the ids of sandboxes' sessions.
const idPrefix = "sb-"

// id is the session's: short, readable, and no other name's.
func (n Name) id() session.ID {
	sum := sha256.Sum256([]byte(n.Namespace + "\x00" + n.Sandbox))
	return session.ID(idPrefix + n.Sandbox + "-" + hex.EncodeToString(sum[:8]))
}

// Status tells about a sandbox.
type Status struct {
	Name
	Running bool
	Image   string // as it was asked for; empty: the default
}

// Start makes a sandbox, or starts a stopped one with the files that it had. With
// settings, these are what it has from now on; nil leaves what it had. One that
// runs already stays as it is: other settings are a fault.Conflict then. After an
// error it is what it was: not there, or stopped.
func (s *Service) Start(ctx context.Context, owner session.Owner, name Name, settings *Settings) (Status, error) {
	if err := s.check(ctx, name); err != nil {
		return Status{}, err
	}
	want, err := s.machine(name, settings)
	if err != nil {
		return Status{}, err
	}
	done, err := s.changes.take(ctx, owner, name)
	if err != nil {
		return Status{}, err
	}
	defer done()
	info, err := s.sessions.Create(ctx, owner, name.id(), session.Settings{Name: name.Sandbox, Isolation: Isolation, MemoryBytes: settings.memory(), Machine: want})
	made := err == nil
	if fault.KindOf(err) == fault.Conflict { // it is there
		info, err = s.again(ctx, owner, name, settings, want)
	}
	if err != nil {
		return Status{}, err
	}
	if err := s.sessions.Boot(ctx, owner, info.ID); err != nil {
		if made {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			err = errors.Join(err, s.sessions.Destroy(ctx, owner, info.ID))
		}
		return Status{}, err
	}
	return statusOf(info, true), nil
}

// cleanTime bounds how long a sandbox that could not be started may take to be
// removed.
const cleanTime = 10 * time.Second

// again gives a sandbox that is there, with other settings where these are asked
// for.
func (s *Service) again(ctx context.Context, owner session.Owner, name Name, settings *Settings, want *session.Machine) (session.Info, error) {
	info, err := s.find(owner, name)
	if fault.KindOf(err) == fault.NotFound {
		return info, fault.New(fault.Conflict, "the session %q is not a sandbox, and has the id that this one would have", name.id()).
			WithHint("choose another name, or destroy that session")
	}
	if err != nil {
		return info, err
	}
	if settings == nil {
		return info, s.stillAllowed(info)
	}
	had := info.Settings
	want.Sandbox = had.Machine.Sandbox
	if settings.memory() == had.MemoryBytes && want.Same(had.Machine) {
		return info, nil
	}
	if running(info) {
		return info, fault.New(fault.Conflict, "the sandbox %q runs with other settings", name.Sandbox).
			WithHint("stop it with sandbox_stop and start it again: its files stay; or omit config")
	}
	had.MemoryBytes, had.Machine = settings.memory(), want
	return s.sessions.Configure(ctx, owner, info.ID, had)
}

// Stop ends all that runs in a sandbox. Its files stay, and a later start finds
// them. One that is stopped already stays so.
func (s *Service) Stop(ctx context.Context, owner session.Owner, name Name) (Status, error) {
	if err := s.check(ctx, name); err != nil {
		return Status{}, err
	}
	done, err := s.changes.take(ctx, owner, name)
	if err != nil {
		return Status{}, err
	}
	defer done()
	info, err := s.find(owner, name)
	if err != nil || !running(info) {
		return statusOf(info, false), err
	}
	if err := s.sessions.Halt(ctx, owner, info.ID); err != nil {
		return Status{}, err
	}
	return statusOf(info, false), nil
}

// find gives the session of a sandbox that was started once.
func (s *Service) find(owner session.Owner, name Name) (session.Info, error) {
	info, err := s.sessions.Info(owner, name.id())
	if fault.KindOf(err) == fault.NotFound || err == nil && (info.Settings.Machine == nil || info.Settings.Machine.Sandbox == nil) {
		return session.Info{}, fault.New(fault.NotFound, "there is no sandbox %q in the namespace %q", name.Sandbox, name.Namespace).
			WithHint("start it with sandbox_start")
	}
	return info, err
}

// Request is a program, or a command with its arguments.
type Request struct {
	Language, Code string // "python" or "nodejs"
	Command        string
	Args           []string
	Timeout        time.Duration // zero: the default
	QueueTimeout   time.Duration // as in session.Request
	// Limit bounds what is kept of the output, in bytes; zero: 1 MiB.
	Limit int64
	// Stdout and Stderr, when set, receive all output while it is printed.
	Stdout, Stderr io.Writer
	// Started is called, when set, with the execution's id when it begins.
	Started func(execution string)
	// Ended is as in session.Request.
	Ended func(session.Result, session.PutFunc)
}

// Result is how a program or command ended.
type Result struct {
	session.Result
	// Output is what was printed, line by line, in the order of printing, and at
	// its end what a program's last line is worth, or its error.
	Output []Line
}

// Success tells whether it ended well.
func (r Result) Success() bool {
	return r.Exit.Cause == sandbox.Exited && r.Exit.Code == 0 && r.Exit.Error == nil
}

// Run runs a program or a command in a sandbox that was started; else it is a
// fault that says to start it.
func (s *Service) Run(ctx context.Context, owner session.Owner, name Name, req Request) (Result, error) {
	if err := s.check(ctx, name); err != nil {
		return Result{}, err
	}
	info, err := s.find(owner, name)
	if err != nil {
		return Result{}, err
	}
	if !running(info) {
		return Result{}, errNotStarted(name)
	}
	if err := s.stillAllowed(info); err != nil {
		return Result{}, err
	}
	out := lines{limit: cmp.Or(req.Limit, 1<<20)}
	run := session.Request{Timeout: req.Timeout, QueueTimeout: req.QueueTimeout, Stdout: out.stream("stdout", req.Stdout), Stderr: out.stream("stderr", req.Stderr), Started: req.Started, Ended: req.Ended}
	if req.Command != "" {
		run.Command = append([]string{req.Command}, req.Args...)
		if _, ok := info.Settings.Machine.Scripts[req.Command]; ok {
			run.Command[0] = session.ScriptsFolder + "/" + req.Command
		}
	} else if run.Language, err = languageOf(req.Language); err != nil {
		return Result{}, err
	} else {
		run.Code, _ = session.Unfenced(req.Code)
	}
	res, err := s.sessions.Execute(ctx, owner, info.ID, run)
	if err != nil {
		if now, e := s.find(owner, name); e == nil && fault.KindOf(err) == fault.Conflict {
			var busy *fault.Error
			if !running(now) {
				err = errNotStarted(name) // it was stopped just now
			} else if errors.As(err, &busy) && busy.RetryAfter > 0 {
				err = busy.WithHint("wait for it, or end it with sandbox_stop and sandbox_start: its files stay")
			}
		}
		return Result{}, err
	}
	return Result{Result: res, Output: out.take(res)}, nil
}

func errNotStarted(name Name) error {
	return fault.New(fault.Conflict, "the sandbox %q is not started", name.Sandbox).WithHint("start it with sandbox_start; its files are there")
}

// stillAllowed refuses a sandbox with folders of this machine that nobody may be
// given any more, or that lead elsewhere by now: it is about to be booted.
func (s *Service) stillAllowed(info session.Info) error {
	for _, v := range info.Settings.Machine.Volumes {
		if real, ok := s.allowed(v.Host); !ok || real != v.Host {
			return errFolder(v.Host)
		}
	}
	return nil
}

// languageOf gives our name of a language.
func languageOf(name string) (string, error) {
	switch strings.ToLower(name) {
	case "python", "python3":
		return "python", nil
	case "nodejs", "node", "javascript":
		return "javascript", nil
	}
	return "", fault.New(fault.Invalid, "there is no language %q in a sandbox", name).WithHint("there are python and nodejs; use sandbox_run_command for others")
}

// Metrics are what a sandbox takes. What is nil is not known: nothing runs.
type Metrics struct {
	Name
	Running bool
	CPU     *float64 // percent of one processor since the last look, or since the start
	Memory  *int64   // MiB
	Disk    *int64   // bytes
}

// Metrics gives those of a namespace, or [AllNamespaces], ordered by name; of
// one sandbox where it is named.
func (s *Service) Metrics(ctx context.Context, owner session.Owner, namespace, sandbox string) ([]Metrics, error) {
	if namespace != AllNamespaces {
		if err := s.check(ctx, Name{namespace, "x"}); err != nil {
			return nil, err
		}
	}
	if sandbox != "" && !namePattern.MatchString(sandbox) {
		return nil, badName("sandbox")
	}
	if sandbox != "" && namespace != AllNamespaces {
		info, err := s.find(owner, Name{namespace, sandbox})
		if err != nil {
			return nil, err
		}
		return []Metrics{s.measure(ctx, info)}, nil
	}
	infos, err := s.sessions.List(owner)
	if err != nil {
		return nil, err
	}
	all := []Metrics{}
	for _, listed := range infos {
		if !strings.HasPrefix(string(listed.ID), idPrefix) {
			continue
		}
		info, err := s.sessions.Info(owner, listed.ID) // a list may be older
		if err != nil {
			continue // it is gone by now
		}
		if m := info.Settings.Machine; m == nil || m.Sandbox == nil ||
			namespace != AllNamespaces && m.Sandbox.Namespace != namespace || sandbox != "" && m.Sandbox.Name != sandbox || !s.reaches(ctx, m.Sandbox.Namespace) {
			continue
		}
		all = append(all, s.measure(ctx, info))
	}
	slices.SortFunc(all, func(a, b Metrics) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Sandbox, b.Sandbox))
	})
	return all, nil
}

func (s *Service) measure(ctx context.Context, info session.Info) Metrics {
	m := Metrics{Name: nameOf(info), Running: running(info)}
	usage, err := s.sessions.Usage(ctx, info.Owner, info.ID)
	if err != nil {
		return m
	}
	m.Disk = &usage.Disk
	if usage.Booted.IsZero() {
		return m
	}
	memory := usage.Memory >> 20
	m.Memory, m.CPU = &memory, &usage.CPU
	return m
}

func nameOf(info session.Info) Name {
	if m := info.Settings.Machine; m != nil && m.Sandbox != nil {
		return Name{m.Sandbox.Namespace, m.Sandbox.Name}
	}
	return Name{}
}

// running tells whether a sandbox was started and not stopped. Its machine may
// be asleep, and wakes with the next run.
func running(info session.Info) bool { return !info.Halted }

func statusOf(info session.Info, running bool) Status {
	st := Status{Name: nameOf(info), Running: running}
	if m := info.Settings.Machine; m != nil {
		st.Image = m.Image
	}
	return st
}

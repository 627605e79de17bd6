package session

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// Bounds of a Request.
const (
	maxCode = 1 << 20
	maxName = 200
	maxArgs = 1 << 20 // bytes, all together
)

// plan is what a request comes to in its session.
type plan struct {
	runtime sandbox.Runtime
	command sandbox.Command
	code    string // what is recorded
	timeout time.Duration
}

// note is what the checkpoint after a run says of it.
func (p *plan) note(t *turn) checkpoint.Note {
	return checkpoint.Note{Cause: history.CauseExecute, Execution: t.execution, Language: p.command.Language, Code: p.code}
}

// checkRequest says what is wrong with a request.
func (c *Config) checkRequest(req Request) error {
	args := 0
	for _, a := range slices.Concat(req.Command, req.Args) {
		args += len(a) + 1
	}
	switch {
	case req.Continue != "" && (req.Code != "" || req.Language != "" || req.Name != "" || req.Stdin != nil || args > 0 || req.Limits != sandbox.RunLimits{}):
		return fault.New(fault.Invalid, "a run that is continued takes no code, language, arguments, input or limits")
	case len(req.Continue) > maxName:
		return fault.New(fault.Invalid, "the id of a run has at most %d bytes", maxName)
	case len(req.Command) > 0 && (req.Code != "" || req.Language != "" || len(req.Args) > 0):
		return fault.New(fault.Invalid, "a command takes no code, language or arguments")
	case len(req.Command) > 0 && (req.Command[0] == "" || slices.ContainsFunc(req.Command, func(a string) bool { return strings.ContainsRune(a, 0) })):
		return fault.New(fault.Invalid, "a command has a name, and no NUL in it")
	case len(req.Code) > maxCode:
		return fault.New(fault.Invalid, "the code has %d bytes, and %d are allowed", len(req.Code), maxCode).WithHint("write it to a file in the workspace and run that")
	case !utf8.ValidString(req.Code):
		return fault.New(fault.Invalid, "the code is not UTF-8")
	case len(req.Name) > maxName || strings.ContainsAny(req.Name, "\x00\r\n"):
		return fault.New(fault.Invalid, "the name has at most %d bytes, on one line", maxName)
	case args > maxArgs:
		return fault.New(fault.Invalid, "the arguments have more than %d bytes", maxArgs).WithHint("write them to a file in the workspace")
	case slices.ContainsFunc(req.Args, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return fault.New(fault.Invalid, "an argument holds a NUL")
	case req.Timeout < 0 || req.Timeout > c.MaxTimeout:
		return fault.New(fault.Invalid, "the timeout lies between 0 and %v", c.MaxTimeout).WithHint("zero stands for %v", c.DefaultTimeout)
	case negative(req.Limits):
		return fault.New(fault.Invalid, "limits are not negative")
	}
	return nil
}

// checkSettings gives the backend that the settings ask for.
func (m *Manager) checkSettings(ctx context.Context, set Settings) (sandbox.Backend, error) {
	b, err := m.backends.named(set.Isolation)
	if err != nil {
		return nil, err
	}
	traits := m.traitsOf(b)
	usual, most := traits.memoryLimits()
	switch {
	case set.MemoryBytes < 0 || set.MemoryBytes > most:
		return nil, fault.New(fault.Invalid, "the memory limit lies between 0 and %d MiB", most>>20).WithHint("zero stands for %d", usual>>20)
	case set.TTL < 0:
		return nil, fault.New(fault.Invalid, "the time to live is not negative")
	case set.Dir != "" && set.Dir != Workspace && set.Dir != Root:
		return nil, fault.New(fault.Invalid, "programs begin in %s or %s, and not in %.100q", Workspace, Root, set.Dir).WithHint("os.chdir and process.chdir lead elsewhere")
	}
	if err := checkName(set.Name); err != nil {
		return nil, err
	}
	if err := traits.checkMachine(set.Machine); err != nil {
		return nil, err
	}
	if set.Language != "" {
		_, err = m.backends.runtimeFor(ctx, b, set.Language)
	}
	return b, err
}

// plan finds out what a request needs, before it waits for its turn.
func (s *session) plan(ctx context.Context, req Request) (plan, error) {
	if s.backend == nil {
		return plan{}, s.backendErr
	}
	if req.Isolation != "" && req.Isolation != s.backend.Name() {
		return plan{}, fault.New(fault.Conflict, "the session's isolation is %q and not %q", s.backend.Name(), req.Isolation).WithHint("create a session with that isolation, or omit it")
	}
	if err := s.checkNotHalted(); err != nil {
		return plan{}, err
	}
	if req.Continue != "" {
		return s.planResume(req)
	}
	language := req.Language
	if language == "" {
		language = s.language()
	}
	var r sandbox.Runtime
	var err error
	if len(req.Command) > 0 {
		if r, err = s.residence.commands(); err == nil {
			language, req.Code, req.Args = r.Name, req.Command[0], req.Command[1:]
		}
	} else {
		r, err = s.manager.backends.runtimeFor(ctx, s.backend, language)
	}
	if err != nil {
		return plan{}, err
	}
	if language == "" { // what is recorded is what runs
		language = r.Languages[0]
	}
	c := &s.manager.config
	p := plan{runtime: r, code: req.Code, timeout: req.Timeout, command: sandbox.Command{
		Code: req.Code, Language: language, Name: req.Name, Args: slices.Clone(req.Args), Stdin: req.Stdin, Limits: merge(req.Limits, c.Limits),
	}}
	if p.timeout == 0 {
		p.timeout = c.DefaultTimeout
	}
	return p, nil
}

// planResume is plan for a run that waits.
func (s *session) planResume(req Request) (plan, error) {
	w, err := s.suspension.find(req.Continue)
	if err != nil {
		return plan{}, err
	}
	return plan{runtime: sandbox.Runtime{Name: w.Runtime}, command: sandbox.Command{Language: w.Language}}, nil
}

// language is the one that the session was made for.
func (s *session) language() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Settings.Language
}

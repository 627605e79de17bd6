package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// Bounds of a Request.
const (
	maxCode = 1 << 20
	maxName = 200
	maxArgs = 1 << 20 // bytes, all together
)

var errStopped = fault.New(fault.Cancelled, "the execution was cancelled before it began")

// plan is what a request comes to in its session.
type plan struct {
	runtime sandbox.Runtime
	command sandbox.Command
	timeout time.Duration
}

// Execute runs a program in a session, after all that came before it. The
// program's own failure is in Result.Exit; an error says that it was not run,
// or not to its end. When ctx ends, the program is stopped or leaves the queue.
// What the program left is on disk when Execute returns, but for
// Config.KeepLater; where it could not be kept, the result's notice says so.
func (m *Manager) Execute(ctx context.Context, owner Owner, id ID, req Request) (Result, error) {
	if err := m.checkRequest(req); err != nil {
		return Result{}, err
	}
	for {
		s, err := m.find(owner, id)
		if err != nil {
			return Result{}, err
		}
		res, err := s.inTurn(ctx, req)
		if !errors.Is(err, errAsleep) {
			return res, err
		}
		<-s.closed // it is opened again
	}
}

// inTurn runs a program when its turn has come.
func (s *session) inTurn(ctx context.Context, req Request) (Result, error) {
	m := s.manager
	p, err := s.plan(ctx, req)
	if err != nil {
		return Result{}, err
	}
	_, queue := s.span(ctx, "session.queue")
	defer queue.End() // the first End counts
	began := time.Now()
	t, err := s.takeTurn(ctx, mint("x-"), nil)
	if err != nil {
		return Result{}, fmt.Errorf("waiting in the session: %w", err)
	}
	defer func() { s.finish(t) }()
	if err := cmp.Or(s.running(), m.shed(t.ctx, s.owner)); err != nil { // it may have been stopped meanwhile
		return Result{}, err
	}
	release, err := m.admit(t.ctx, s.owner)
	if err != nil {
		return Result{}, fmt.Errorf("waiting to run: %w", err)
	}
	defer release()
	t.queued = time.Since(began)
	queue.End()
	if req.Started != nil {
		req.Started(t.execution)
	}
	return s.recorded(t, p, req)
}

// finish ends a turn, after what is left to do in it.
func (s *session) finish(t *turn) {
	if t.later == nil {
		s.leave(t)
		return
	}
	go func() { // the session's end waits for the turn's
		t.later()
		s.leave(t)
	}()
}

func (m *Manager) checkRequest(req Request) error {
	args := 0
	for _, a := range slices.Concat(req.Command, req.Args) {
		args += len(a) + 1
	}
	switch {
	case len(req.Command) > 0 && (req.Code != "" || req.Language != "" || len(req.Args) > 0):
		return fault.New(fault.Invalid, "a command has no code, language or arguments besides")
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
	case req.Timeout < 0 || req.Timeout > m.config.MaxTimeout:
		return fault.New(fault.Invalid, "the timeout lies between 0 and %v", m.config.MaxTimeout).WithHint("zero stands for %v", m.config.DefaultTimeout)
	case negative(req.Limits):
		return fault.New(fault.Invalid, "limits are not negative")
	}
	return nil
}

// checkSettings gives the backend that the settings ask for.
func (m *Manager) checkSettings(ctx context.Context, set Settings) (sandbox.Backend, error) {
	b, err := m.backend(set.Isolation)
	if err != nil {
		return nil, err
	}
	usual, most := m.memoryOf(b)
	switch {
	case set.MemoryBytes < 0 || set.MemoryBytes > most:
		return nil, fault.New(fault.Invalid, "the memory limit lies between 0 and %d MiB", most>>20).WithHint("zero stands for %d", usual>>20)
	case set.TTL < 0:
		return nil, fault.New(fault.Invalid, "the time to live is not negative")
	case len(set.Name) > maxName || !utf8.ValidString(set.Name):
		return nil, fault.New(fault.Invalid, "the name has at most %d bytes of UTF-8", maxName)
	case set.Machine != nil && !hasMachines(b):
		return nil, fault.New(fault.Unsupported, "the isolation %q has no machines: no images, processors, volumes, ports or variables can be asked for", b.Name()).
			WithHint("leave them away, or use an isolation that has: see list_runtimes")
	case !possible(set.Machine):
		return nil, fault.New(fault.Invalid, "a machine has 0 to %d processors, and its image a name of at most %d bytes", maxCPUs, maxImage)
	}
	if set.Language != "" {
		_, err = m.runtimeFor(ctx, b, set.Language)
	}
	return b, err
}

// runtimeFor finds the backend's runtime of a language; "" stands for the first.
func (m *Manager) runtimeFor(ctx context.Context, b sandbox.Backend, language string) (sandbox.Runtime, error) {
	probe, err := guard("probing", func() (sandbox.Probe, error) { return b.Probe(ctx), nil })
	if err != nil {
		return sandbox.Runtime{}, err
	}
	if !probe.Available {
		return sandbox.Runtime{}, fault.New(fault.Unavailable, "the isolation %q does not work here: %s", b.Name(), probe.Reason).WithHint("%s", probe.Hint)
	}
	var known []string
	for _, r := range probe.Runtimes {
		if language == "" || slices.Contains(r.Languages, language) {
			return r, nil
		}
		known = append(known, r.Languages...)
	}
	f := fault.New(fault.Unsupported, "the isolation %q does not run %q", b.Name(), language)
	if other := m.whoRuns(ctx, language); other != "" {
		return sandbox.Runtime{}, f.WithHint("the isolation %q does: create a session with it; this one runs %s", other, enumerate(known))
	}
	return sandbox.Runtime{}, f.WithHint("it runs %s", enumerate(known))
}

// plan finds out what a request needs, before it waits for its turn.
func (s *session) plan(ctx context.Context, req Request) (plan, error) {
	if s.backend == nil {
		return plan{}, s.backendErr
	}
	if req.Isolation != "" && req.Isolation != s.backend.Name() {
		return plan{}, fault.New(fault.Conflict, "the session's isolation is %q and not %q", s.backend.Name(), req.Isolation).WithHint("create a session with that isolation, or leave it away")
	}
	if err := s.running(); err != nil {
		return plan{}, err
	}
	language := req.Language
	if language == "" {
		language = s.language()
	}
	var r sandbox.Runtime
	var err error
	if len(req.Command) > 0 {
		if r, err = s.commands(); err == nil {
			language, req.Code, req.Args = r.Name, req.Command[0], req.Command[1:]
		}
	} else {
		r, err = s.manager.runtimeFor(ctx, s.backend, language)
	}
	if err != nil {
		return plan{}, err
	}
	if language == "" { // what is recorded is what runs
		language = r.Languages[0]
	}
	c := &s.manager.config
	p := plan{runtime: r, timeout: req.Timeout, command: sandbox.Command{
		Code: req.Code, Language: language, Name: req.Name, Args: slices.Clone(req.Args), Stdin: req.Stdin, Limits: merge(req.Limits, c.Limits),
	}}
	if p.timeout == 0 {
		p.timeout = c.DefaultTimeout
	}
	return p, nil
}

// language is the one that the session was made for.
func (s *session) language() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Settings.Language
}

// execute runs the program; it is the caller's turn.
func (s *session) execute(t *turn, p plan, req Request) (Result, error) {
	if err := s.catchUp(t.ctx); err != nil {
		return Result{}, err
	}
	in, err := s.interpreter(t, p.runtime)
	if err != nil {
		return Result{}, err
	}
	var before workspace.Snapshot
	if s.manager.config.KeepLater || s.passing() {
		if before, err = s.tree.Snapshot(); err != nil {
			return Result{}, fmt.Errorf("looking at the workspace: %w", err)
		}
	}
	stdout := recorder{limit: p.command.Limits.StdoutBytes, also: req.Stdout}
	stderr := recorder{limit: p.command.Limits.StderrBytes, also: req.Stderr}
	var shown displays
	p.command.Stdout, p.command.Stderr, p.command.Display = &stdout, &stderr, shown.add
	ctx, cancel := context.WithTimeout(t.ctx, p.timeout)
	defer cancel()
	ctx, running := s.span(ctx, "sandbox.run")
	began := time.Now()
	exit, err := guard("running", func() (sandbox.Exit, error) { return in.Run(ctx, p.command) })
	wall := time.Since(began)
	describeRun(running, p, exit)
	endSpan(running, err)
	s.tooLate(t)
	if err != nil {
		return Result{}, s.broken(t, p.runtime.Name, in, err)
	}
	gone, notice := overtaken(context.Cause(t.ctx)), ""
	if gone == "" {
		notice = s.notice(p.runtime.Name, exit, s.rollBackFiles(t, exit))
		switch context.Cause(t.ctx) {
		case errRestored:
			notice = joinNotices(notice, "The session was then taken back to an earlier state.")
		case errHalted:
			notice = joinNotices(notice, "The session was then stopped: nothing runs in it any more. Files in /workspace are there.")
		}
	} else {
		exit.State, notice = sandbox.Fresh, gone
	}
	exit.StdoutTruncated = exit.StdoutTruncated || stdout.cut
	exit.StderrTruncated = exit.StderrTruncated || stderr.cut
	res := Result{
		Session: s.id, Execution: t.execution, Isolation: s.backend.Name(), Exit: exit,
		Stdout: string(stdout.data), Stderr: string(stderr.data), Displays: shown.take(), Wall: wall, Notice: notice,
	}
	live := s.account(p.runtime.Name, in, exit)
	if gone == "" {
		if req.Ended != nil {
			req.Ended(res, s.put)
		}
		s.keepRun(t, p, live, before, &res)
	}
	return res, nil
}

// catchUp deals with what ended or failed since the last call: after that a program
// finds interpreters and files that belong together.
func (s *session) catchUp(ctx context.Context) error {
	s.bury(ctx)
	s.retire(ctx, time.Now())
	return s.whole(ctx)
}

// put writes a file that shows what the present execution, which is counted
// already, printed or showed.
func (s *session) put(name string, data []byte) (string, error) {
	s.mu.Lock()
	number := s.record.Executions
	s.mu.Unlock()
	f, err := s.tree.Put(fmt.Sprintf("%s/%d-%s", Shown, number, name), data)
	return f.Path, err
}

// keepRun makes the checkpoint after a run, now or later, and fills in what it
// says.
func (s *session) keepRun(t *turn, p plan, live map[string]sandbox.Instance, before workspace.Snapshot, res *Result) {
	keep := func() ([]workspace.Change, error) {
		_, keeping := s.span(t.ctx, "checkpoint")
		ctx, cancel := lasting(t.ctx)
		defer cancel()
		files, err := s.keep(ctx, checkpoint.Note{Cause: history.CauseExecute, Execution: t.execution, Language: p.command.Language, Code: p.command.Code}, live)
		endSpan(keeping, err)
		s.noteUnkept()
		if err := s.save(); err != nil {
			s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
		}
		return files, err
	}
	if !s.manager.config.KeepLater && !s.passing() {
		files, err := keep()
		res.Changes = changesOf(files)
		if err != nil && !s.died(t, p.runtime.Name, live, res) {
			res.Notice = joinNotices(res.Notice, s.notKept(t, err))
		}
		return
	}
	if after, err := s.tree.Snapshot(); err != nil {
		s.manager.log.WarnContext(t.ctx, "the workspace cannot be looked at", "session", s.id, "execution", t.execution, "cause", causeOf(err))
	} else {
		res.Changes = changesOf(before.Changes(after))
	}
	if s.passing() {
		return
	}
	t.later = func() {
		if _, err := keep(); err != nil {
			s.tell(s.notKept(t, err))
		}
	}
}

// died tells whether an interpreter ended before what its run left was kept. Then
// all is as it was before the run, and the result says so.
func (s *session) died(t *turn, runtime string, live map[string]sandbox.Instance, res *Result) bool {
	in := live[runtime]
	if in == nil {
		return false
	}
	select {
	case <-in.Done():
	default:
		return false
	}
	s.drop(runtime, in)
	s.anew[runtime] = true
	s.lose(t.ctx, runtime, "its interpreter ended before what it held was kept")
	s.news = ""
	res.Exit.Cause, res.Exit.Code, res.Exit.State, res.Changes = sandbox.Crashed, max(res.Exit.Code, 1), sandbox.Restored, nil
	if res.Exit.Error == nil {
		res.Exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter ended right after the program"}
	}
	res.Notice = joinNotices(res.Notice, "The interpreter ended right after the program, before what that left could be kept: variables and files are as they were before this call.")
	if _, lost := s.lost[runtime]; lost {
		res.Exit.State = sandbox.Fresh
		delete(s.lost, runtime)
	}
	return true
}

// joinNotices puts two notices into one.
func joinNotices(a, b string) string { return strings.TrimSpace(a + " " + b) }

// tell has the next result say this, once. It is the caller's turn.
func (s *session) tell(news string) {
	if !strings.Contains(s.news, news) {
		s.news = joinNotices(s.news, news)
	}
}

// account counts a run, and gives the interpreter whose state is to be kept: nil
// for one that is gone with its state.
func (s *session) account(runtime string, in sandbox.Instance, exit sandbox.Exit) map[string]sandbox.Instance {
	if exit.Usage.Memory > 0 { // else it counts what it may take
		s.manager.memory.Set(s.holder(runtime), s.memoryNow(exit.Usage.Memory))
	}
	live := map[string]sandbox.Instance{runtime: in}
	if exit.State == sandbox.Fresh {
		if keeps(in) {
			s.keeping.Lock()
			s.unsure[runtime] = true
			s.keeping.Unlock()
		}
		select {
		case <-in.Done(): // the run took the interpreter with it
			s.drop(runtime, in)
			s.anew[runtime] = true
			live[runtime] = nil
		default:
		}
	}
	s.mu.Lock()
	s.record.Executions++
	if s.record.Runtimes == nil {
		s.record.Runtimes = map[string]int64{}
	}
	s.record.Runtimes[runtime]++
	s.record.LastUsedAt = time.Now()
	s.mu.Unlock()
	s.unsaved()
	return live
}

// Cancel stops an execution, running or waiting, or all of the session when
// execution is "". It gives how many it stopped: 0 when it came too late.
func (m *Manager) Cancel(owner Owner, id ID, execution string) (int, error) {
	if err := id.check(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	s := m.sessions[key{owner, id}]
	m.mu.Unlock()
	if s != nil {
		<-s.opened
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.phase == free || s.phase == working {
			return s.stopLocked(errStopped, execution), nil
		}
		return 0, errNotFound(id)
	}
	i, err := m.infoOnDisk(key{owner, id})
	if err != nil {
		return 0, err
	}
	if i.Process != 0 {
		return 0, fault.New(fault.Conflict, "the session %q is open in another process (pid %d)", id, i.Process).WithHint("only that process can cancel its executions")
	}
	return 0, nil
}

// recorder keeps what was printed, up to a limit, and passes all of it on.
type recorder struct {
	limit int64
	also  io.Writer
	data  []byte
	cut   bool
}

func (r *recorder) Write(p []byte) (int, error) {
	keep := p
	if room := r.limit - int64(len(r.data)); int64(len(keep)) > room {
		keep, r.cut = keep[:room], true
	}
	r.data = append(r.data, keep...)
	if r.also != nil {
		if n, err := r.also.Write(p); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// displays collects what was shown.
type displays struct {
	mu  sync.Mutex
	all []sandbox.Display
}

func (d *displays) add(one sandbox.Display) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

func (d *displays) take() []sandbox.Display {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all
}

// causeOf is what the operator should read.
func causeOf(err error) error {
	if cause := errors.Unwrap(fault.Of(err)); cause != nil {
		return cause
	}
	return err
}

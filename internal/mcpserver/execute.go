package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

type executeInput struct {
	code, language, isolation string
	execution                 string // one that waits, to go on with
	timeout                   int64
	session                   session.ID
	interrupt                 bool
}

// queueTimeout is how long a program may have been running for the next call to wait for it
// without a word. Clients that give up on a call and do not say so are those that set a
// timeout, of 10 s and more.
const queueTimeout = 5 * time.Second

func (s *Server) executeTool(langs, isos []string) tool {
	about := "Run code in a sandbox: " + s.networkInWords() + ", files in /workspace. " + staying + " " +
		"The last expression's value is the result; display(x) shows a picture."
	t := define("execute_code", "Run code", about, hints{destructive: true},
		func(in *executeInput) []param { return in.params(s, langs, isos) }, executeCode)
	t.mayTakeLong = true
	if s.config.Servers != nil || len(s.reaches(nil)) > 0 {
		return t.open()
	}
	return t
}

func (in *executeInput) params(s *Server, langs, isos []string) []param {
	code := text("code", &in.code, 1, 1<<20, "Top-level await works")
	if s.config.Approvals == nil {
		code = code.must() // nothing waits, and there is nothing else to run
	}
	all := []param{
		code,
		choice("language", &in.language, langs, "Or session's"),
		number("timeout", &in.timeout, 1, seconds(s.config.MaxTimeout), fmt.Sprintf("Seconds; default %d", seconds(s.config.DefaultTimeout))),
		sessionID(&in.session, aboutSession),
		choice("isolation", &in.isolation, isos, "Or session's"),
		boolean("interrupt", &in.interrupt, "Stop what runs"),
	}
	if s.config.Approvals != nil {
		all = append(all, text("execution_id", &in.execution, 0, 100, "To continue"))
	}
	return all
}

func seconds(d time.Duration) int64 { return max(1, int64(d/time.Second)) }

func executeCode(ctx context.Context, c *call, in executeInput) (Execution, answer, error) {
	code, language := session.Unfenced(in.code)
	if in.code = code; in.language == "" {
		in.language = language
	}
	switch {
	case in.code == "" && in.execution == "":
		return Execution{}, answer{}, fault.New(fault.Invalid, "code is missing").WithHint("give the program's text, or the execution_id of one that waits")
	case in.execution != "" && (in.code != "" || in.language != "" || in.isolation != ""):
		return Execution{}, answer{}, fault.New(fault.Invalid, "an execution that waits goes on with the code that it has").WithHint("give execution_id without code, language and isolation")
	case c.Inputs != nil && c.server.canElicit():
		return c.executeInRounds(ctx, in)
	}
	before, err := c.claim(ctx, &in)
	if err != nil {
		return Execution{}, answer{}, err
	}
	if before != nil && !before.Waits() {
		return c.outcome(before.Outcome())
	}
	return c.outcome(c.server.executions.Run(ctx, c.request(before), func(ctx context.Context) (execution.Part, error) {
		return c.begin(ctx, in)
	}))
}

// begin runs a program, or goes on with one.
func (c *call) begin(ctx context.Context, in executeInput) (p execution.Part, err error) {
	defer c.noteIn(&p)
	if in.execution != "" {
		p, err = c.goOn(ctx, in.session, in.execution, in.timeout)
		p.Told = p.Result.Earlier
		return p, err
	}
	settings := session.Settings{Language: in.language, Isolation: in.isolation}
	if err := c.ensure(ctx, in.session, settings); err != nil {
		return p, err
	}
	err = c.inSession(ctx, in.session, settings, func(id session.ID) (err error) {
		p, err = c.execute(ctx, id, session.Request{
			Code: in.code, Language: in.language, Isolation: in.isolation, Timeout: time.Duration(in.timeout) * time.Second,
			QueueTimeout: queueTimeout, Interrupt: in.interrupt,
		})
		return err
	})
	return p, err
}

// Continue implements [execution.Program].
func (c *call) Continue(ctx context.Context, id session.ID, execution string) (p execution.Part, err error) {
	defer c.noteIn(&p)
	return c.goOn(ctx, id, execution, 0)
}

// noteIn adds to what came of a program what the call has found out about its session.
func (c *call) noteIn(p *execution.Part) { p.Session, p.Named, p.Notice = c.session, c.named, c.notice }

// goOn goes on with an execution that waits.
func (c *call) goOn(ctx context.Context, id session.ID, execution string, timeout int64) (execution.Part, error) {
	return c.execute(ctx, id, session.Request{Continue: execution, Timeout: time.Duration(timeout) * time.Second})
}

// execute has a session run something, and tells the client what it prints.
func (c *call) execute(ctx context.Context, id session.ID, req session.Request) (p execution.Part, err error) {
	req.Started = func(execution string) { c.execution = execution }
	req.Ended = func(res session.Result, put session.PutFunc) {
		p.Filed = c.server.putAway(ctx, c.bound.Owner, res, put)
	}
	err = reporting(c.Notify, func(stdout, stderr io.Writer) error {
		req.Stdout, req.Stderr = stdout, stderr
		p.Result, err = c.server.config.Sessions.Execute(ctx, c.bound.Owner, id, req)
		return err
	})
	return p, err
}

// outcome makes of what came of an execution what its client is told.
func (c *call) outcome(p execution.Part, err error) (Execution, answer, error) {
	c.named = c.named || p.Named
	if c.session = cmp.Or(p.Session, c.session); err != nil {
		return Execution{}, answer{}, err
	}
	res := p.Result
	c.execution, c.session = res.Execution, res.Session
	if p.Notice != "" {
		res.Notice = strings.TrimSpace(p.Notice + " " + res.Notice)
	}
	res.Stdout, res.StdoutStream.Bytes = res.Stdout[p.Told.Stdout:], res.StdoutStream.Bytes-int64(p.Told.Stdout)
	res.Stderr, res.StderrStream.Bytes = res.Stderr[p.Told.Stderr:], res.StderrStream.Bytes-int64(p.Told.Stderr)
	out, shown := describe(res, p.Filed)
	c.server.advise(out.Error)
	if lacks := LacksIndex(res, c.server.config.Packages.ServesKind); lacks != "" {
		out.Notice = strings.TrimSpace(out.Notice + " " + lacks)
	}
	switch res.Exit.Cause {
	case sandbox.Waiting:
		out.Waiting = c.server.waitingFor(res, string(c.bound.Owner))
	case sandbox.TimedOut:
		if called := c.server.describeUnanswered(res, string(c.bound.Owner)); called != "" && out.Error != nil {
			out.Error.Hint = fmt.Sprintf(unansweredHint, called)
		}
	}
	return out, answer{texts: out.texts(), shown: shown}, nil
}

// Execution is how a program's run looks in results.
type Execution struct {
	Stdout          string        `json:"stdout" listed:"true"`
	Stderr          string        `json:"stderr" listed:"true"`
	ExitCode        int           `json:"exit_code" listed:"true"`
	Success         bool          `json:"success" listed:"true"`
	ExecutionTimeMS float64       `json:"execution_time_ms"`
	FuelConsumed    uint64        `json:"fuel_consumed"` // 0 where nothing counts it
	FuelLimit       uint64        `json:"fuel_limit"`    // what was in force; 0: none
	SessionID       session.ID    `json:"session_id" listed:"true"`
	ExecutionID     string        `json:"execution_id"`
	Isolation       string        `json:"isolation"`
	Engine          string        `json:"engine"`               // what executed it, for example "native"
	Result          string        `json:"result" listed:"true"` // repr of the last expression
	FilesChanged    []Change      `json:"files_changed"`
	FilesOmitted    int           `json:"files_omitted,omitempty"` // changes beyond the list
	StdoutTruncated bool          `json:"stdout_truncated"`
	StderrTruncated bool          `json:"stderr_truncated"`
	StoppedBy       string        `json:"stopped_by"`
	State           string        `json:"state,omitempty"` // of the variables, when it was stopped
	Error           *ProgramError `json:"error,omitempty" listed:"true"`
	Notice          string        `json:"notice,omitempty"`
	Displays        []Display     `json:"displays,omitempty"`
	Waiting         *Waiting      `json:"waiting,omitempty" listed:"true"` // it has not ended
	Usage           Usage         `json:"usage"`
}

// Change is one file that a run added, modified or removed; or a folder, with so
// many Files below it.
type Change struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	Size   int64  `json:"size"`
	Files  int    `json:"files,omitempty"`
}

// ProgramError is an error that a program did not catch, or what stopped it.
type ProgramError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Line    int    `json:"line"`
	Hint    string `json:"hint"`
}

// Display is something that a program showed. Pictures are content blocks.
type Display struct {
	MIMEType string `json:"mime_type"`
	Size     int    `json:"size"`
	Text     string `json:"text,omitempty"`
	Path     string `json:"path,omitempty"`    // the file with all of it; what is shown is a preview
	Problem  string `json:"problem,omitempty"` // why it is not shown
}

// told is what has to be said of a display beside what is shown of it; "": nothing.
func (d Display) told() string {
	switch {
	case d.Path != "":
		return fmt.Sprintf("in a file: %s (%s, %d bytes); what is shown is a preview", d.Path, d.MIMEType, d.Size)
	case d.Problem != "":
		return "not shown: " + d.Problem
	}
	return ""
}

// Usage is what a run cost.
type Usage struct {
	CPUMS       float64 `json:"cpu_ms"`
	MemoryBytes int64   `json:"memory_bytes"`
	EgressBytes int64   `json:"egress_bytes"`
	ToolCalls   int64   `json:"tool_calls"`
}

// Bounds of one result. What a client shows its model is about 80 KB at most.
const (
	maxOutput  = 60 << 10 // stdout and stderr together
	maxResult  = 18 << 10 // a repr, and an error's message
	maxChanges = 200
)

// Describe makes of a run what clients see: bounded, and telling what was cut.
func Describe(res session.Result) Execution {
	out, _ := describe(res, execution.Filed{})
	return out
}

func describe(res session.Result, kept execution.Filed) (Execution, []shown) {
	exit := res.Exit
	out := Execution{
		ExitCode: exit.Code, Success: exit.Cause == sandbox.Exited && exit.Code == 0 && exit.Error == nil,
		ExecutionTimeMS: milliseconds(res.Wall), FuelConsumed: exit.Usage.Fuel,
		SessionID: res.Session, ExecutionID: res.Execution, Isolation: res.Isolation, Engine: exit.Engine, FuelLimit: exit.Usage.FuelLimit,
		Result: cutMiddle(exit.Result, maxResult), FilesChanged: []Change{},
		StdoutTruncated: exit.StdoutTruncated, StderrTruncated: exit.StderrTruncated,
		StoppedBy: stopped[exit.Cause], Error: errorOf(exit), Notice: noticeOf(res),
		Usage: Usage{CPUMS: milliseconds(exit.Usage.CPU), MemoryBytes: exit.Usage.Memory, EgressBytes: res.Egress, ToolCalls: int64(res.ToolCalls)},
	}
	if out.StoppedBy != "" {
		out.State = exit.State.String()
	}
	out.fillOutput(res, kept)
	changes := fold(res.Changes)
	out.FilesChanged = append(out.FilesChanged, changes[:min(len(changes), maxChanges)]...)
	out.FilesOmitted = len(changes) - len(out.FilesChanged)
	list := showAll(res.Session, res.Execution, res.Displays, roomForPictures(kept))
	for k := range list {
		showFiled(kept.Displays[k], &list[k], res.Displays[k])
		out.Displays = append(out.Displays, list[k].Display)
	}
	return out, list
}

// noticeOf is what the model has to know of a run before it goes on.
func noticeOf(res session.Result) string {
	var all []string
	flooded := res.Exit.Cause == sandbox.OutputExceeded
	for _, one := range []string{
		res.Notice, lostIn("stdout", res.StdoutStream, flooded), lostIn("stderr", res.StderrStream, flooded), res.Refused,
	} {
		if one != "" {
			all = append(all, one)
		}
	}
	return strings.Join(all, " ")
}

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}

// shares divides room between the two streams.
func shares(stdout, stderr string, room int) (forOut, forErr int) {
	forErr = min(len(stderr), max(room/3, room-len(stdout)))
	return room - forErr, forErr
}

// fillOutput puts what was printed in, within the bounds that the two streams share.
// Bytes that are no UTF-8 are replaced. What is in a file is shown in extracts.
func (e *Execution) fillOutput(res session.Result, kept execution.Filed) {
	stdout, stderr := strings.ToValidUTF8(res.Stdout, "\uFFFD"), strings.ToValidUTF8(res.Stderr, "\uFFFD")
	forOut, forErr := shares(stdout, stderr, maxOutput)
	if kept.Stdout.Path != "" {
		forOut = min(forOut, previewOutput)
	}
	if kept.Stderr.Path != "" {
		forErr = min(forErr, previewOutput)
	}
	e.Stdout, e.Stderr = cutFiled(kept.Stdout, stdout, res.StdoutStream.Bytes, forOut), cutFiled(kept.Stderr, stderr, res.StderrStream.Bytes, forErr)
	e.StdoutTruncated = e.StdoutTruncated || e.Stdout != stdout
	e.StderrTruncated = e.StderrTruncated || e.Stderr != stderr
}

// advice is what to do about a program that was stopped.
var advice = map[sandbox.Cause]ProgramError{
	sandbox.TimedOut:       {Type: "Timeout", Message: "it was stopped at its time limit", Hint: "give a larger timeout, or do the work in steps: variables stay between calls"},
	sandbox.OutOfFuel:      {Type: "OutOfFuel", Message: "it was stopped: its budget of work is used up", Hint: "do the work in steps, or with fewer rounds in loops"},
	sandbox.OutOfMemory:    {Type: "OutOfMemory", Message: "it needed more memory than the session has", Hint: "work on parts of the data, or create a session with a larger memory_mb"},
	sandbox.OutOfSpace:     {Type: "OutOfSpace", Message: "the workspace's disk limit is reached", Hint: "delete files that are no longer needed"},
	sandbox.OutputExceeded: {Type: "OutputLimit", Message: "it was stopped: it printed far beyond its limit", Hint: "write large output to a file in /workspace and read parts of it"},
	sandbox.Cancelled:      {Type: "Cancelled", Message: "it was stopped: the call was cancelled"},
	sandbox.Crashed:        {Type: "Crash", Message: "the interpreter crashed", Hint: "the notice tells what became of the variables"},
}

// errorOf is the error that the program did not catch, or else what stopped it.
func errorOf(exit sandbox.Exit) *ProgramError {
	why, known := advice[exit.Cause]
	e := exit.Error
	switch {
	case e == nil && !known:
		return nil
	case e == nil:
		return &why
	}
	return &ProgramError{
		Type: textsafe.Cut(e.Type, 200), Message: cmp.Or(cutMiddle(e.Message, maxResult), why.Message),
		Line: e.Line, Hint: cmp.Or(textsafe.Cut(e.Hint, 1000), why.Hint),
	}
}

// texts are the text blocks: what was printed, then what there is to know.
func (e *Execution) texts() []string {
	printed := e.Stdout
	if e.Stderr != "" {
		if printed != "" && !strings.HasSuffix(printed, "\n") {
			printed += "\n"
		}
		printed += "stderr:\n" + e.Stderr
	}
	var lines []string
	if e.Result != "" {
		lines = append(lines, "result: "+e.Result)
	}
	if e.Error != nil {
		line := "error: " + e.Error.Type
		if e.Error.Message != "" {
			line += ": " + e.Error.Message
		}
		if e.Error.Line > 0 {
			line += fmt.Sprintf(" (line %d)", e.Error.Line)
		}
		if e.Error.Hint != "" {
			line += "\nhint: " + e.Error.Hint
		}
		lines = append(lines, line)
	} else if e.ExitCode != 0 {
		lines = append(lines, fmt.Sprintf("exit code: %d", e.ExitCode))
	}
	if e.Waiting != nil {
		lines = append(lines, e.Waiting.lines()...)
	}
	if e.StoppedBy != "" {
		lines = append(lines, "stopped by: "+e.StoppedBy+"; variables: "+e.State)
	}
	if e.Notice != "" {
		lines = append(lines, "notice: "+e.Notice)
	}
	for _, d := range e.Displays {
		if said := d.told(); said != "" {
			lines = append(lines, said)
		}
	}
	var blocks []string
	if printed != "" {
		blocks = append(blocks, printed)
	}
	if len(lines) > 0 {
		blocks = append(blocks, strings.Join(lines, "\n"))
	}
	if len(blocks) == 0 && len(e.Displays) == 0 {
		blocks = append(blocks, "(no output)")
	}
	return blocks
}

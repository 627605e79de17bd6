package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// Execution is what is kept of one execution: it belongs to the checkpoint after it, and
// is collected with that. Of streams, results and errors the beginning and the end are
// kept (maxKept), of displays as many as [checkpoint.MaxDisplayed] has room for.
type Execution struct {
	ID string `json:"execution_id"`
	// Checkpoint is the one after it; of one that waited for a person, the last.
	Checkpoint string    `json:"checkpoint"`
	At         time.Time `json:"at"` // it ended, or began to wait
	Language   string    `json:"language,omitempty"`
	// Kept says that its output is kept: else of Code there is the first line, and nothing
	// of what follows that but for the changes.
	Kept bool `json:"kept"`
	output
	Displays []Displayed `json:"displays"`
	// Variables and Files are what it changed.
	Variables []VariableChange `json:"variables"`
	Files     []Change         `json:"files"`
	// Notice tells what cannot be read of it; empty: all can.
	Notice string `json:"notice,omitempty"`

	numbers []int64 // of its checkpoints
}

// output is the text of a [checkpoint.Output].
type output struct {
	Number  int64    `json:"number,omitempty"` // among the session's executions
	Code    string   `json:"code"`
	Args    []string `json:"args,omitempty"`
	Stdout  string   `json:"stdout,omitempty"`
	Stderr  string   `json:"stderr,omitempty"`
	Result  string   `json:"result,omitempty"`
	Success bool     `json:"success"`
	// Cause is why it ended ("exited", "timeout", "waiting"); see [sandbox.Cause].
	Cause    string         `json:"cause,omitempty"`
	ExitCode int            `json:"exit_code"`
	Error    *KeptError     `json:"error,omitempty"`
	State    string         `json:"state,omitempty"` // of the interpreter; see [sandbox.State]
	Refused  string         `json:"refused,omitempty"`
	Told     string         `json:"told,omitempty"` // the result's notice
	Waiting  []string       `json:"waiting,omitempty"`
	Usage    ExecutionUsage `json:"usage"`
	// StdoutPath and StderrPath are the files of the workspace with all of a stream, where
	// the result had no room for it.
	StdoutPath string `json:"stdout_path,omitempty"`
	StderrPath string `json:"stderr_path,omitempty"`
}

// KeptError is the error that a program ended with.
type KeptError struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Line      int    `json:"line,omitempty"`
	Hint      string `json:"hint,omitempty"`
	Traceback string `json:"traceback,omitempty"`
}

// ExecutionUsage is what an execution took.
type ExecutionUsage struct {
	WallMillis   int64  `json:"wall_ms"`
	CPUMillis    int64  `json:"cpu_ms"`
	Fuel         uint64 `json:"fuel,omitempty"`
	MemoryBytes  int64  `json:"memory_bytes"`
	EgressBytes  int64  `json:"egress_bytes"`
	ToolCalls    int    `json:"tool_calls"`
	StdoutBytes  int64  `json:"stdout_bytes"`
	StderrBytes  int64  `json:"stderr_bytes"`
	DisplayBytes int64  `json:"display_bytes"`
}

// Displayed is one thing that an execution displayed.
type Displayed struct {
	MIME string `json:"mime"`
	Size int64  `json:"size"`
	// Kept says that its data is kept: there was room for it.
	Kept bool `json:"kept"`
}

// maxKept bounds what is kept of each stream, of a result, an error's message and its
// traceback, in bytes. Code is kept whole.
const maxKept = 128 << 10

// output is what is kept of the run, with the session's secrets taken out; nil: nothing is.
func (r *run) output(res *Result) *checkpoint.Output {
	s, c := r.s, &r.s.manager.config
	if c.DropOutput || s.isEphemeral() {
		return nil
	}
	clean := cleaner{s: s}
	exit, u := res.Exit, res.Exit.Usage
	out := output{
		Number: r.number, Code: clean.text(r.p.code), Stdout: clean.most(res.Stdout), Stderr: clean.most(res.Stderr), Result: clean.most(exit.Result),
		Success: exit.Cause == sandbox.Exited && exit.Code == 0, Cause: exit.Cause.String(), ExitCode: exit.Code, State: exit.State.String(),
		Refused: clean.most(res.Refused), Told: clean.most(res.Notice), Waiting: res.Waiting,
		StdoutPath: res.StdoutStream.Path, StderrPath: res.StderrStream.Path,
		Usage: ExecutionUsage{
			WallMillis: res.Wall.Milliseconds(), CPUMillis: u.CPU.Milliseconds(), Fuel: u.Fuel, MemoryBytes: u.Memory, EgressBytes: res.Egress,
			ToolCalls: res.ToolCalls, StdoutBytes: r.stdout.bytes, StderrBytes: r.stderr.bytes,
		},
	}
	for _, a := range r.p.command.Args {
		out.Args = append(out.Args, clean.text(a))
	}
	if e := exit.Error; e != nil {
		out.Error = &KeptError{Type: e.Type, Message: clean.most(e.Message), Line: e.Line, Hint: clean.most(e.Hint), Traceback: clean.most(e.Traceback)}
	}
	kept := &checkpoint.Output{}
	for _, d := range res.Displays {
		out.Usage.DisplayBytes += int64(len(d.Data))
		kept.Displays = append(kept.Displays, checkpoint.Display{MIME: d.MIME, Data: clean.bytes(d.Data)})
	}
	text, err := json.Marshal(out)
	if err = errors.Join(err, clean.err); err != nil {
		s.manager.log.Warn("what an execution printed is not kept", "session", s.id, "execution", r.t.execution, "cause", fault.CauseOf(err))
		return nil
	}
	kept.Text = text
	return kept
}

// cleaner takes a session's secrets out of what is kept of its executions.
type cleaner struct {
	s   *session
	err error // why something may hold some
}

func (c *cleaner) bytes(data []byte) []byte {
	if c.err != nil || len(data) == 0 || !c.s.hasSecrets() {
		return data
	}
	var cleaned []byte
	cleaned, c.err = guard("taking secrets out", func() ([]byte, error) {
		return c.s.manager.config.Secrets.Clean(c.s.owner, c.s.id, data)
	})
	return cleaned
}

func (c *cleaner) text(t string) string {
	if t == "" || !c.s.hasSecrets() {
		return t
	}
	return string(c.bytes([]byte(t)))
}

// most is text, and of a long one the beginning and the end.
func (c *cleaner) most(t string) string {
	t = c.text(t)
	if len(t) <= maxKept {
		return t
	}
	r := recorder{limit: maxKept}
	_, _ = r.Write([]byte(t)) // it goes nowhere else
	t, _ = r.text()
	return t
}

// Executions lists what is kept of a session's executions, in their order: those whose
// checkpoints are there. It opens no session and wakes none, as [Manager.Checkpoints].
func (m *Manager) Executions(owner Owner, id ID) (all []Execution, err error) {
	err = m.look(owner, id, func(c *checkpoints) error {
		all = nil
		steps, err := c.repo.History()
		for _, step := range steps {
			if step.Execution == "" {
				continue
			}
			e, err := c.execution(step)
			if err != nil {
				return err
			}
			if last := len(all) - 1; last >= 0 && all[last].ID == e.ID { // it waited in between
				e = joined(all[last], e)
				all = all[:last]
			}
			all = append(all, e)
		}
		return err
	})
	return all, err
}

// execution reads what a checkpoint has of its execution, but for displays' data.
func (c *checkpoints) execution(m *history.Manifest) (Execution, error) {
	e := Execution{
		ID: m.Execution, Checkpoint: strconv.FormatInt(m.Number, 10), At: m.At, Language: m.Language, numbers: []int64{m.Number},
		Displays: []Displayed{}, Variables: variableChangesOf(m.Variables), Files: fileChangesOf(m.Files),
	}
	e.Code = m.Code
	if m.Output == nil {
		return e, nil
	}
	text, err := c.repo.OutputText(m)
	switch {
	case errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrDamaged):
		e.Notice = "what it printed cannot be read any more"
		return e, nil
	case err != nil:
		return e, err
	}
	if err := json.Unmarshal(text, &e.output); err != nil {
		return e, fmt.Errorf("reading what an execution printed: %w", err)
	}
	e.Kept = true
	for _, d := range m.Output.Displays {
		e.Displays = append(e.Displays, Displayed{MIME: d.MIME, Size: d.Size, Kept: d.Content != nil})
	}
	return e, nil
}

// joined is an execution of which an earlier checkpoint was made as it waited: its streams
// are all that it printed, and its displays and changes those since.
func joined(earlier, e Execution) Execution {
	e.numbers = append(earlier.numbers, e.numbers...)
	e.Displays = append(earlier.Displays, e.Displays...)
	e.Usage.DisplayBytes += earlier.Usage.DisplayBytes
	for _, v := range earlier.Variables {
		if !slices.ContainsFunc(e.Variables, func(o VariableChange) bool { return o.Name == v.Name }) {
			e.Variables = append(e.Variables, v)
		}
	}
	for _, f := range earlier.Files {
		if !slices.ContainsFunc(e.Files, func(o Change) bool { return o.Path == f.Path }) {
			e.Files = append(e.Files, f)
		}
	}
	return e
}

// Displays reads what an execution displayed, which is one of [Manager.Executions]: Data is
// nil of what is not kept.
func (m *Manager) Displays(owner Owner, id ID, e Execution) (all []sandbox.Display, err error) {
	err = m.look(owner, id, func(c *checkpoints) error {
		all = nil
		for _, n := range e.numbers {
			shown, err := c.repo.Displays(n)
			if err != nil {
				return err
			}
			for _, d := range shown {
				all = append(all, sandbox.Display{MIME: d.MIME, Data: d.Data})
			}
		}
		return nil
	})
	return all, err
}

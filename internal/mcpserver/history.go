package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// Bounds of the history tools.
const (
	maxLabel       = 100
	maxForks       = 100
	maxCheckpoints = 50 // in one list
	maxTold        = 10 // variables, and files, of one checkpoint in a list
	maxCodeLine    = 100
)

func (s *Server) historyTools() []tool {
	keep := define("checkpoint_session", "Keep checkpoint", "Keep variables and files as they are now, under a label. Each run is kept by itself.", hints{},
		func(in *historyInput) []param { return []param{in.labelParam(), in.sessionParam()} }, checkpointSession)
	keep.mayTakeLong = true // it waits for what runs
	return []tool{
		keep,
		define("list_checkpoints", "List checkpoints", "The states to go back to, the newest first, with what each changed: + added, ~ modified, - removed.", hints{readOnly: true},
			func(in *historyInput) []param { return []param{in.sessionParam()} }, listCheckpoints),
		define("restore_session", "Restore checkpoint", "Bring variables and files back to a checkpoint; what runs is stopped. What is now can be restored in turn.", hints{destructive: true, idempotent: true},
			func(in *historyInput) []param {
				return []param{in.checkpointParam("Number or label").must(), in.sessionParam()}
			}, restoreSession),
		define("undo", "Undo", "Bring variables and files back to what they were before the last run or change; again: one further back.", hints{destructive: true},
			func(in *historyInput) []param { return []param{in.sessionParam()} }, undo),
		define("fork_session", "Fork session", "Make new sessions that begin with this one's variables and files.", hints{},
			func(in *historyInput) []param {
				return []param{
					number("count", &in.count, 1, maxForks, "How many; default 1"),
					in.checkpointParam("Number or label; default: now"),
					in.sessionParam(),
				}
			}, forkSession),
	}
}

// historyInput is what the history tools are asked for, each a part of it.
type historyInput struct {
	session           session.ID
	label, checkpoint string
	count             int64
}

func (in *historyInput) sessionParam() param { return sessionID(&in.session, aboutSession) }

func (in *historyInput) labelParam() param {
	return text("label", &in.label, 0, maxLabel, "Name for it")
}

func (in *historyInput) checkpointParam(about string) param {
	return text("checkpoint", &in.checkpoint, 1, maxLabel, about)
}

// past gives the session that a call named, or its default one. It makes none:
// a new session has no past.
func (c *call) past(given session.ID) (session.ID, error) {
	if c.session = given; given == "" {
		c.session = c.server.defaultOf(c.bound)
	}
	if c.session == "" {
		return "", fault.New(fault.NotFound, "there is no session yet").WithHint("give the session_id of an earlier result, or run something first")
	}
	if given != "" {
		c.server.Named(c.bound.Owner, given)
	}
	return c.session, nil
}

type checkpointed struct {
	SessionID  session.ID `json:"session_id"`
	Checkpoint string     `json:"checkpoint"`
	Label      string     `json:"label,omitempty"`
	CreatedAt  string     `json:"created_at"`
	Bytes      int64      `json:"bytes"`
	Notice     string     `json:"notice,omitempty"` // what is not in it
}

func checkpointSession(ctx context.Context, c *call, in historyInput) (checkpointed, answer, error) {
	id, err := c.past(in.session)
	if err != nil {
		return checkpointed{}, answer{}, err
	}
	made, err := c.server.config.Sessions.Checkpoint(ctx, c.bound.Owner, id, in.label)
	if err != nil {
		return checkpointed{}, answer{}, err
	}
	return checkpointed{SessionID: id, Checkpoint: made.ID, Label: made.Label, CreatedAt: timestamp(made.CreatedAt), Bytes: made.Bytes, Notice: made.Notice}, answer{}, nil
}

type checkpointList struct {
	SessionID   session.ID   `json:"session_id"`
	Checkpoints []checkpoint `json:"checkpoints"`
	Omitted     int          `json:"omitted,omitempty"` // older ones
}

// checkpoint is one of a list. What changed is told in words of one sign and a
// name: a model reads many of them.
type checkpoint struct {
	Checkpoint  string   `json:"checkpoint"`
	Label       string   `json:"label,omitempty"`
	Current     bool     `json:"current,omitempty"`
	CreatedAt   string   `json:"created_at"`
	Cause       string   `json:"cause"`
	Previous    string   `json:"previous,omitempty"` // where undo leads from it
	ExecutionID string   `json:"execution_id,omitempty"`
	Language    string   `json:"language,omitempty"`
	Code        string   `json:"code,omitempty"`
	Variables   []string `json:"variables"`
	Files       []string `json:"files"`
	Omitted     int      `json:"omitted,omitempty"` // variables and files beyond the lists
	Bytes       int64    `json:"bytes"`
	Memory      bool     `json:"memory,omitempty"` // what runs in its machine is in it, too
}

func listCheckpoints(_ context.Context, c *call, in historyInput) (checkpointList, answer, error) {
	id, err := c.past(in.session)
	if err != nil {
		return checkpointList{}, answer{}, err
	}
	all, err := c.server.config.Sessions.Checkpoints(c.bound.Owner, id)
	if err != nil {
		return checkpointList{}, answer{}, err
	}
	out := checkpointList{SessionID: id, Checkpoints: []checkpoint{}}
	var lines []string
	for _, one := range worthTelling(all) {
		told := checkpointOf(one)
		out.Checkpoints = append(out.Checkpoints, told)
		lines = append(lines, told.line())
	}
	if out.Omitted = len(all) - len(out.Checkpoints); out.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("[%d older ones are not listed; they can be restored too]", out.Omitted))
	}
	return out, answer{texts: []string{cmp.Or(strings.Join(lines, "\n"), "(no checkpoints)")}}, nil
}

// worthTelling gives the newest first, and no more than a list holds: the oldest
// go, those without a label before those that have one, and the current one never.
func worthTelling(all []session.Checkpoint) []session.Checkpoint {
	spare := len(all) - maxCheckpoints
	for _, labelled := range []bool{false, true} {
		all = slices.DeleteFunc(slices.Clone(all), func(c session.Checkpoint) bool {
			if spare <= 0 || c.Current || c.Label != "" && !labelled {
				return false
			}
			spare--
			return true
		})
	}
	slices.Reverse(all)
	return all
}

func checkpointOf(p session.Checkpoint) checkpoint {
	out := checkpoint{
		Checkpoint: p.ID, Label: p.Label, Current: p.Current, CreatedAt: timestamp(p.CreatedAt), Cause: p.Cause, Previous: p.Previous,
		ExecutionID: p.Execution, Language: p.Language, Code: textsafe.Cut(p.Code, maxCodeLine), Variables: variableWords(p.Variables, maxTold), Files: []string{}, Bytes: p.Bytes, Memory: p.Memory,
	}
	for _, f := range p.Files[:min(len(p.Files), maxTold)] {
		word := signs[f.Change] + textsafe.Cut(f.Path, 200)
		if f.Change != "removed" {
			word += fmt.Sprintf(" (%d bytes)", f.Size)
		}
		out.Files = append(out.Files, word)
	}
	out.Omitted = len(p.Variables) + len(p.Files) - len(out.Variables) - len(out.Files)
	return out
}

// variableWords tells of the first variables, most at most.
func variableWords(list []session.VariableChange, most int) []string {
	words := []string{}
	for _, v := range list[:min(len(list), most)] {
		words = append(words, signs[v.Change]+textsafe.Cut(v.Name, 100))
	}
	return words
}

var signs = map[string]string{"added": "+", "modified": "~", "removed": "-"}

// line is a checkpoint as a person would read it.
func (p checkpoint) line() string {
	words := []string{p.Checkpoint}
	if p.Current {
		words = append(words, "(current)")
	}
	if p.Label != "" {
		words = append(words, fmt.Sprintf("%q", p.Label))
	}
	words = append(words, p.CreatedAt, p.Cause)
	if p.Language != "" {
		words = append(words, p.Language)
	}
	if p.Code != "" {
		words = append(words, fmt.Sprintf("%q", p.Code))
	}
	parts := []string{strings.Join(words, " ")}
	if len(p.Variables) > 0 {
		parts = append(parts, "variables: "+strings.Join(p.Variables, ", "))
	}
	if len(p.Files) > 0 {
		parts = append(parts, "files: "+strings.Join(p.Files, ", "))
	}
	if p.Omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", p.Omitted))
	}
	return strings.Join(parts, "; ")
}

type restored struct {
	SessionID        session.ID `json:"session_id"`
	Checkpoint       string     `json:"checkpoint"` // which the session is at now
	Label            string     `json:"label,omitempty"`
	Undone           string     `json:"undone"` // which it was at: it can be restored
	VariablesChanged []string   `json:"variables_changed"`
	VariablesOmitted int        `json:"variables_omitted,omitempty"`
	FilesChanged     []Change   `json:"files_changed"`
	FilesOmitted     int        `json:"files_omitted,omitempty"`
	Notice           string     `json:"notice,omitempty"`
}

func restoredTo(id session.ID, r session.Restored) restored {
	out := restored{
		SessionID: id, Checkpoint: r.Checkpoint.ID, Label: r.Checkpoint.Label, Undone: r.Undone,
		VariablesChanged: variableWords(r.Variables, maxChanges), FilesChanged: []Change{}, Notice: r.Notice,
	}
	out.VariablesOmitted = len(r.Variables) - len(out.VariablesChanged)
	for _, f := range r.Changes[:min(len(r.Changes), maxChanges)] {
		out.FilesChanged = append(out.FilesChanged, Change{Path: f.Path, Change: f.Change, Size: f.Size})
	}
	out.FilesOmitted = len(r.Changes) - len(out.FilesChanged)
	return out
}

func restoreSession(ctx context.Context, c *call, in historyInput) (restored, answer, error) {
	id, err := c.past(in.session)
	if err != nil {
		return restored{}, answer{}, err
	}
	r, err := c.server.config.Sessions.Restore(ctx, c.bound.Owner, id, in.checkpoint)
	if err != nil {
		return restored{}, answer{}, err
	}
	return restoredTo(id, r), answer{}, nil
}

func undo(ctx context.Context, c *call, in historyInput) (restored, answer, error) {
	id, err := c.past(in.session)
	if err != nil {
		return restored{}, answer{}, err
	}
	r, err := c.server.config.Sessions.Undo(ctx, c.bound.Owner, id)
	if err != nil {
		return restored{}, answer{}, err
	}
	return restoredTo(id, r), answer{}, nil
}

type forked struct {
	SessionID session.ID   `json:"session_id"` // which was copied
	Forks     []session.ID `json:"forks"`
	ExpiresAt string       `json:"expires_at"` // of the forks, unused
}

func forkSession(ctx context.Context, c *call, in historyInput) (forked, answer, error) {
	id, err := c.past(in.session)
	if err != nil {
		return forked{}, answer{}, err
	}
	made, err := c.server.config.Sessions.Fork(ctx, c.bound.Owner, id, in.checkpoint, int(max(1, in.count)))
	if err != nil {
		return forked{}, answer{}, err
	}
	out := forked{SessionID: id, Forks: []session.ID{}}
	for _, one := range made {
		out.Forks = append(out.Forks, one.ID)
		out.ExpiresAt = timestamp(one.ExpiresAt)
	}
	return out, answer{}, nil
}

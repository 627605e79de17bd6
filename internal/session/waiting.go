package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// A run that waits for a person is suspended: its program is left as it waits, and the
// session's checkpoint holds the calls that it waits for besides what it always does
// (package checkpoint). From then on nothing of it is in this process that is not on
// disk, so that the session may sleep, and any process may go on with the run, once:
// that it goes on is on disk before its program does. What runs in its interpreter in
// its place gives it up, which is on disk before that runs.

// WaitingRun is a run that waits for a person, and does not go on before it is told to
// (Request.Continue).
type WaitingRun struct {
	Owner     Owner     `json:"-"`
	Session   ID        `json:"-"`
	Execution string    `json:"execution_id"`
	Language  string    `json:"language,omitempty"`
	Since     time.Time `json:"since"`
	// Reasons are what Run.Suspend was told, in the order of the calls, each once.
	Reasons []string `json:"reasons"`
}

// Earlier says how much of a Result's Stdout and Stderr, in bytes, was in a result of
// the same run before, which waited then.
type Earlier struct{ Stdout, Stderr int }

// suspended is what a checkpoint's content holds of a run that waits: all that is
// needed to go on with it, besides its interpreter.
type suspended struct {
	Number int64 `json:"number"` // among the session's executions
	Code   string
	Limits sandbox.RunLimits
	Left   time.Duration // of its timeout
	Fuel   uint64        // that it has used
	Shown  int64         // bytes of displays

	Stdout, Stderr           []byte
	StdoutTail, StderrTail   []byte `json:",omitempty"`
	StdoutBytes, StderrBytes int64  `json:",omitempty"`
	StdoutCut, StderrCut     bool   // some never came

	Calls  int
	Beside int `json:",omitempty"` // of those: calls that are none of tools
	Open   []sandbox.OpenCall
}

// maxReason bounds why a run waits, in bytes.
const maxReason = 200

// wait makes the checkpoint of a run that waits for a person. After an error it has not
// been suspended.
func (r *run) wait(exit sandbox.Exit, reasons map[int]string, wall time.Duration) (Result, error) {
	s, t := r.s, r.t
	notice := s.notice(r.p.runtime.Name, exit, false)
	res := r.result(exit, wall, notice)
	for _, number := range slices.Sorted(maps.Keys(reasons)) {
		why := reasons[number]
		if len(why) > maxReason {
			why = strings.ToValidUTF8(why[:maxReason], "") + "…"
		}
		if !slices.Contains(res.Waiting, why) {
			res.Waiting = append(res.Waiting, why)
		}
	}
	live := r.accountFor(exit)
	r.ended(&res)
	content, err := json.Marshal(r.suspended(exit, wall))
	if err == nil && len(content) > checkpoint.MaxContent {
		err = fault.New(fault.Exhausted, "what the run waits for takes %d MiB", len(content)>>20)
	}
	if err == nil {
		n := r.p.note(t)
		n.Content, n.Output = content, r.output(&res)
		if !keeps(r.in) { // the program waits on in its machine, as that is saved
			n.Save, n.MachineMoved = s.residence.saver(), true
		}
		n.Waiting = &history.Waiting{
			Execution: t.execution, Runtime: r.p.runtime.Name, Language: r.p.command.Language, Since: time.Now().UTC(), Reasons: res.Waiting,
		}
		res.Changes, err = r.checkpoint(n, live)
	}
	if err != nil {
		s.addNotice(notice) // with the result that there will be
		err = r.notSuspended(err)
	}
	return res, err
}

// errMustNotContinue is for a run that has not been suspended, and may be found so after a crash:
// it must not go on here as well.
var errMustNotContinue = errors.New("session: the run may be found waiting, and does not go on")

// notSuspended makes sure that a run which could not be kept is not found waiting after
// a crash; err is why it could not.
func (r *run) notSuspended(err error) error {
	s, t := r.s, r.t
	if !errors.Is(err, history.ErrPerhaps) {
		return err
	}
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if again := s.checkpoints.repo.Suspend(ctx); again != nil {
		return errors.Join(errMustNotContinue, err, again)
	}
	return err
}

// suspended is what the run needs to go on.
func (r *run) suspended(exit sandbox.Exit, wall time.Duration) suspended {
	return suspended{
		Number: r.number, Code: r.p.code, Limits: r.p.command.Limits, Left: max(r.p.timeout-wall+r.waited, time.Second), Fuel: r.used.Fuel + r.fuel(), Shown: r.displayed(),
		Stdout: r.stdout.head, StdoutTail: r.stdout.tail, StdoutBytes: r.stdout.bytes, StdoutCut: r.stdout.cut,
		Stderr: r.stderr.head, StderrTail: r.stderr.tail, StderrBytes: r.stderr.bytes, StderrCut: r.stderr.cut,
		Calls: exit.Calls, Beside: r.backgroundCalls(), Open: exit.Open,
	}
}

// resume makes the run what it was when it was suspended.
func (r *run) resume() {
	from := r.from
	r.counted, r.number = true, from.Number
	r.p.code, r.p.command.Limits = from.Code, from.Limits
	r.p.timeout = min(cmp.Or(r.req.Timeout, from.Left), from.Left)
	r.p.command.Continue = &sandbox.Continuation{Calls: from.Calls, Open: from.Open}
	r.stdout.begin(from.Stdout, from.StdoutTail, from.StdoutBytes, from.StdoutCut)
	r.stderr.begin(from.Stderr, from.StderrTail, from.StderrBytes, from.StderrCut)
	r.earlier[0], _ = r.stdout.text()
	r.earlier[1], _ = r.stderr.text()
}

// backgroundCalls is how many calls of the run were none of tools.
func (r *run) backgroundCalls() int {
	n := 0
	if r.calls != nil {
		n = r.calls.Background()
	}
	if r.from != nil {
		n += r.from.Beside
	}
	return n
}

// fuel is what the run had used when it was suspended.
func (r *run) fuel() uint64 {
	if r.from == nil {
		return 0
	}
	return r.from.Fuel
}

// displayed is how many bytes the run has displayed, as they are counted.
func (r *run) displayed() (bytes int64) {
	if r.from != nil {
		bytes = r.from.Shown
	}
	for _, d := range r.shown.take() {
		bytes += max(int64(len(d.Data)), 1<<10)
	}
	return bytes
}

// supersede gives up the run that waits in the interpreter in which this one is about to run.
func (r *run) supersede() error {
	if w := r.s.suspension.waits(); w == nil || w.Runtime != r.p.runtime.Name {
		return nil
	}
	w, err := r.s.suspension.abandon(r.t.ctx, "")
	if err != nil {
		return fmt.Errorf("giving up the run that waits: %w", err)
	}
	if w != nil { // nobody cancelled it just now
		r.s.addNotice(fmt.Sprintf("The run %s waited for a person in this interpreter (%s), and was given up for this call.", w.Execution, enumerate(w.Reasons)))
	}
	return nil
}

// noteLost deals with a run that was gone on with and that the sandbox lost.
func (r *run) noteLost() {
	if r.from == nil {
		return
	}
	ctx, cancel := lasting(r.t.ctx)
	defer cancel()
	r.s.checkpoints.mu.Lock()
	defer r.s.checkpoints.mu.Unlock()
	if err := r.s.checkpoints.repo.Abandon(ctx); err != nil {
		r.s.manager.log.WarnContext(ctx, "that a run is over cannot be noted", "session", r.s.id, "execution", r.t.execution, "cause", fault.CauseOf(err))
	}
}

// noteWaiting has the record say what waits. The caller holds checkpoints.mu.
func (s *session) noteWaiting() {
	w := s.checkpoints.repo.Head().Waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Waiting = describeWaiting(w)
}

func describeWaiting(w *history.Waiting) *WaitingRun {
	if w == nil {
		return nil
	}
	return &WaitingRun{Execution: w.Execution, Language: w.Language, Since: w.Since, Reasons: w.Reasons}
}

// WaitingRuns lists the runs that wait for a person in an owner's sessions, the one that
// waits for longest first; owner "": in everybody's. It opens no session.
func (m *Manager) WaitingRuns(owner Owner) ([]WaitingRun, error) {
	owners := []Owner{owner}
	if owner == "" {
		var err error
		if owners, err = m.Owners(); err != nil {
			return nil, err
		}
	}
	var all []WaitingRun
	for _, o := range owners {
		sessions, err := m.List(o)
		if err != nil {
			return nil, err
		}
		for _, i := range sessions {
			if i.Waiting != nil {
				all = append(all, *i.Waiting)
			}
		}
	}
	slices.SortFunc(all, func(a, b WaitingRun) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Execution, b.Execution))
	})
	return all, nil
}

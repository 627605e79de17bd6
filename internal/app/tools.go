package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"paddock/internal/approval"
	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
)

// sitePackages is where programs written for Mayflower Sandbox find skills and servers.
const sitePackages = "/site-packages/"

// tools are other MCP servers' tools, as sessions' programs call them. It observes sessions
// ([session.Observer]) and answers calls ([session.Tools]).
type tools struct {
	broker    *broker.Broker
	servers   []*Server
	approvals *approvals
	log       *slog.Logger
	sessions  *session.Manager
}

// cleanJournal writes down answers without the values of the session's secrets.
type cleanJournal struct {
	*journal.Journal
	clean func(session.Owner, session.ID, []byte) ([]byte, error)
}

// End implements [broker.Journal].
func (j *cleanJournal) End(ctx context.Context, c journal.Call, o journal.Outcome) (err error) {
	if o.Answer, err = j.clean(session.Owner(c.Owner), session.ID(c.Session), o.Answer); err != nil {
		return fmt.Errorf("reading the session's secrets: %w", err)
	}
	return j.Journal.End(ctx, c, o)
}

func (a *App) openJournal() (*cleanJournal, error) {
	calls, err := journal.Open(filepath.Join(a.ServersFolder(), "calls"))
	if err != nil {
		return nil, err
	}
	return &cleanJournal{calls, a.secrets.clean}, nil
}

// newTools makes the broker of other servers. Servers that cannot be used are left out and
// told of in the log: no session waits for them.
func (a *App) newTools(sessions *session.Manager) (*tools, error) {
	all, err := a.Servers()
	if err != nil {
		a.Log.Error("the servers that were added are not used", "cause", err, "hint", fault.Of(err).Hint)
	}
	t := &tools{servers: all, approvals: a.approvals, log: a.Log, sessions: sessions}
	if t.broker, err = a.newBroker(t); err != nil {
		t.closeServers()
		return nil, err
	}
	return t, nil
}

func (a *App) newBroker(t *tools) (*broker.Broker, error) {
	var usable []broker.Definition
	for _, k := range t.servers {
		if k.Err != nil {
			a.Log.Warn("a server is not used", "server", k.Name, "from", k.Origin, "cause", k.Err)
			continue
		}
		usable = append(usable, k.definition)
	}
	c := a.Config.MCP
	bindable, err := broker.ParseAllowlist(c.Allowlist)
	if err != nil {
		return nil, err
	}
	calls, err := a.openJournal()
	if err != nil {
		return nil, err
	}
	b, err := broker.New(broker.Config{
		Servers: usable, Bindable: bindable, Bound: broker.Policy(c.Tools), Chosen: t.chosen, CallsPerRun: int(c.CallsPerRun),
		Dial: a.dialOptions(broker.Definition{}), Dir: a.ServersFolder(), Seal: a.Vault(), Instance: a.instance(),
		Journal: calls,
		Pool:    upstream.PoolConfig{Idle: c.SessionTTL, Interval: c.CallInterval},
		Approve: a.approvals.approve, Memory: a.memory, Record: toolRecorder(a.Audit, a.telemetry, a.Log.Warn), Log: a.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the broker of other servers: %w", err)
	}
	return b, nil
}

// folder shows programs the servers as modules.
func (t *tools) folder() session.Folder {
	return session.Folder{Name: "servers", Aliases: []string{sitePackages + "servers"}, Refresh: t.fill}
}

// instance names this state folder's paddocks to servers that call them back, and tells
// nothing else.
func (env *Env) instance() string {
	host, _ := os.Hostname() // without one the folder alone tells them apart
	sum := sha256.Sum256([]byte(host + "\x00" + env.StateDir))
	return hex.EncodeToString(sum[:16])
}

func (t *tools) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	put := func(name string, data []byte) (string, error) {
		path, err := run.Put(name, data)
		return "/workspace/" + path, err // wherever the program is by then
	}
	ctx = approval.WithSuspend(ctx, run.Suspend)
	return t.broker.Call(ctx, broker.Run{Session: brokered(run.Owner, run.Session), Execution: run.Execution, Put: put, Inherited: broker.InheritedFrom(ctx)}, c)
}

// Record implements [session.Observer]: a fork gets the servers that its parent has bound,
// and which calls a run made is forgotten when it has ended.
func (t *tools) Record(ctx context.Context, e session.Event) error {
	switch s := brokered(e.Owner, e.Session); {
	case e.Action == session.Creating && e.Parent != "" && e.Err == nil:
		if err := t.broker.Copy(brokered(e.Owner, e.Parent), s); err != nil {
			t.log.WarnContext(ctx, "a fork has not the servers that its parent bound", "session", e.Session, "cause", err)
		}
	case e.Action == session.Executing && !e.Begun && !e.Waits: // else it may go on yet
		t.broker.Finished(broker.Run{Session: s, Execution: e.Execution})
	}
	return nil
}

func (t *tools) fill(ctx context.Context, owner session.Owner, id session.ID, dir string) error {
	t.broker.Await(ctx, brokered(owner, id), session.ProgramOf(ctx))
	return t.broker.Provide(ctx, brokered(owner, id), dir)
}

// Removed implements [session.Observer].
func (t *tools) Removed(owner session.Owner, id session.ID) {
	t.approvals.withdraw(owner, id, "")
	t.broker.Forget(brokered(owner, id))
}

// Abandoned implements [session.Tools].
func (t *tools) Abandoned(owner session.Owner, id session.ID, execution string) {
	t.approvals.withdraw(owner, id, execution)
	t.broker.Finished(broker.Run{Session: brokered(owner, id), Execution: execution})
}

// Interrupted implements [session.Tools].
func (t *tools) Interrupted(owner session.Owner, id session.ID, except string) (news string, done func()) {
	return t.broker.CutShort(brokered(owner, id), except)
}

func brokered(owner session.Owner, id session.ID) broker.Session {
	return broker.Session{Owner: string(owner), ID: string(id)}
}

// chosen tells which of the operator's servers a session has; nil: all.
func (t *tools) chosen(s broker.Session) (*[]string, error) {
	info, err := t.sessions.Info(session.Owner(s.Owner), session.ID(s.ID))
	return info.Settings.Servers, err
}

func (t *tools) closeServers() {
	for _, k := range t.servers {
		k.Close()
	}
}

// Close ends the calls and the connections.
func (t *tools) Close() error {
	err := t.broker.Close()
	t.closeServers()
	return err
}

// toolRecorder passes a call of another server's tool on to who records and who
// measures it. Neither its arguments nor its result are in what they are told.
func toolRecorder(log *audit.Log, t *telemetry.Telemetry, warn func(string, ...any)) func(context.Context, broker.Event) {
	return func(ctx context.Context, e broker.Event) {
		r := recordedCall(e)
		t.ToolCall(ctx, r.Outcome, e.Took)
		if err := log.Write(ctx, r); err != nil {
			warn("the audit log did not take a record", "action", r.Action, "cause", err)
		}
	}
}

func recordedCall(e broker.Event) audit.Record {
	r := audit.Record{
		Action: audit.ToolCall, Principal: e.Owner, Session: e.ID, Execution: e.Execution, Target: e.Server + "/" + e.Tool,
		Call: e.Number, ArgumentsSHA256: e.ArgumentsDigest, TookMS: milliseconds(e.Took), Outcome: audit.Success,
	}
	if e.Verdict != 0 {
		r.Verdict = e.Verdict.String()
	}
	switch {
	case errors.Is(e.Err, session.ErrSuspended):
		r.Outcome = audit.Waiting // and is made again when somebody has decided
	case e.Err != nil:
		r.Outcome, r.ErrorType = audit.Error, string(fault.KindOf(e.Err))
		var up *upstream.Error
		if errors.As(e.Err, &up) {
			r.ErrorType = string(up.Reason)
		}
	case e.ToolFailed:
		r.Outcome = audit.Failure
	}
	return r
}

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
}

// cleaner takes the values of a session's secrets out of a text. After an error there is no
// text that may be kept.
type cleaner = func(session.Owner, session.ID, []byte) ([]byte, error)

// cleanJournal writes down answers without the values of the session's secrets.
type cleanJournal struct {
	*journal.Journal
	clean cleaner
}

// End implements [broker.Journal].
func (j *cleanJournal) End(ctx context.Context, c journal.Call, o journal.Outcome) (err error) {
	if o.Answer, err = j.clean(session.Owner(c.Owner), session.ID(c.Session), o.Answer); err != nil {
		return fmt.Errorf("reading the session's secrets: %w", err)
	}
	return j.Journal.End(ctx, c, o)
}

// openJournal opens the journal of calls. What it writes down has gone through clean.
func (env *Env) openJournal(clean cleaner) (*cleanJournal, error) {
	calls, err := journal.Open(filepath.Join(env.ServersFolder(), "calls"))
	if err != nil {
		return nil, err
	}
	return &cleanJournal{calls, clean}, nil
}

// newTools makes the broker of other servers. The journal has answers as clean leaves them.
// Servers that cannot be used are left out, which the log says: no session waits for them.
func (b *base) newTools(sessions *session.Manager, clean cleaner) (*tools, error) {
	calls, err := b.openJournal(clean)
	if err != nil {
		return nil, err
	}
	all, err := b.Servers()
	if err != nil {
		b.Log.Error("the servers that were added are not used", "cause", err, "hint", fault.Of(err).Hint)
	}
	of, err := b.newBroker(all, calls, chosenServers(sessions))
	if err != nil {
		closeServers(all)
		return nil, err
	}
	return &tools{broker: of, servers: all, approvals: b.approvals, log: b.Log}, nil
}

// newBroker makes the broker of these servers. chosen gives the operator's servers that a
// session has; nil: all.
func (b *base) newBroker(all []*Server, calls *cleanJournal, chosen func(broker.Session) (*[]string, error)) (*broker.Broker, error) {
	var usable []broker.Definition
	for _, k := range all {
		if k.Err != nil {
			b.Log.Warn("a server is not used", "server", k.Name, "from", k.Origin, "cause", k.Err)
			continue
		}
		usable = append(usable, k.definition)
	}
	c := b.Config.MCP
	bindable, err := broker.ParseAllowlist(c.Allowlist)
	if err != nil {
		return nil, err
	}
	of, err := broker.New(broker.Config{
		Servers: usable, Bindable: bindable, Bound: broker.Policy(c.Tools), Chosen: chosen, CallsPerRun: int(c.CallsPerRun),
		Dial: b.dialOptions(broker.Definition{}), Dir: b.ServersFolder(), Seal: b.Vault(), Instance: b.instance(),
		Journal: calls,
		Pool:    upstream.PoolConfig{Idle: c.SessionTTL, Interval: c.CallInterval},
		Approve: b.approvals.approve, Memory: b.memory, Record: b.recordToolCall, Log: b.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the broker of other servers: %w", err)
	}
	return of, nil
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

// chosenServers gives which of the operator's servers a session has; nil: all.
func chosenServers(sessions *session.Manager) func(broker.Session) (*[]string, error) {
	return func(s broker.Session) (*[]string, error) {
		info, err := sessions.Info(session.Owner(s.Owner), session.ID(s.ID))
		return info.Settings.Servers, err
	}
}

func closeServers(all []*Server) {
	for _, k := range all {
		k.Close()
	}
}

// Close ends the calls and the connections.
func (t *tools) Close() error {
	err := t.broker.Close()
	closeServers(t.servers)
	return err
}

// recordToolCall records and measures a call of another server's tool. Neither its
// arguments nor its result are in that.
func (b *base) recordToolCall(ctx context.Context, e broker.Event) {
	r := recordedCall(e)
	b.telemetry.ToolCall(ctx, r.Outcome, e.Took)
	b.note(ctx, r)
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

package cli

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

// bindings are other MCP servers, joined to sessions.
type bindings struct {
	broker  *broker.Broker
	servers []*known
	waiting *approvals
	journal *cleanJournal
	log     *slog.Logger
	// sessions tells what sessions are; it is set before any of them runs a program.
	sessions *session.Manager
}

// cleanJournal writes down answers without the values of the session's secrets.
type cleanJournal struct {
	*journal.Journal
	clean func(session.Owner, session.ID, []byte) ([]byte, error) // set before any session is made
}

// End implements [broker.Journal].
func (j *cleanJournal) End(ctx context.Context, c journal.Call, o journal.Outcome) (err error) {
	if o.Answer, err = j.clean(session.Owner(c.Owner), session.ID(c.Session), o.Answer); err != nil {
		return fmt.Errorf("reading the session's secrets: %w", err)
	}
	return j.Journal.End(ctx, c, o)
}

// openBindings joins the broker, and puts it into the sessions' configuration. Servers
// that cannot be used are left out and told of in the log: no session waits for them.
func (p *program) openBindings(sc *session.Config, o *parts) (*bindings, error) {
	waiting, log, t := o.approvals, o.audit, o.telemetry
	all, err := p.knownServers()
	if err != nil {
		p.log.Error("the servers that were added are not used", "cause", err, "hint", fault.Of(err).Hint)
	}
	b := &bindings{servers: all, waiting: waiting, log: p.log}
	var usable []broker.Definition
	for _, k := range all {
		if k.err != nil {
			p.log.Warn("a server is not used", "server", k.name, "from", k.origin, "cause", k.err)
			continue
		}
		usable = append(usable, k.definition)
	}
	c := p.config.MCP
	bindable, err := broker.ParseAllowlist(c.Allowlist)
	if err != nil {
		b.closeServers()
		return nil, err
	}
	calls, err := journal.Open(filepath.Join(p.serversFolder(), "calls"))
	if err != nil {
		b.closeServers()
		return nil, err
	}
	b.journal = &cleanJournal{Journal: calls}
	b.broker, err = broker.New(broker.Config{
		Servers: usable, Bindable: bindable, Bound: broker.Policy(c.Tools), Chosen: b.chosen, CallsPerRun: int(c.CallsPerRun),
		Dial: p.dialOptions(broker.Definition{}), Dir: p.serversFolder(), Seal: p.vault(), Instance: p.instance(), Journal: b.journal,
		Pool:    upstream.PoolConfig{Idle: c.SessionTTL, Interval: c.CallInterval},
		Approve: waiting.approve, Memory: o.memory, Record: toolRecorder(log, t, p.log.Warn), Log: p.log,
	})
	if err != nil {
		b.closeServers()
		return nil, fmt.Errorf("making the broker of other servers: %w", err)
	}
	sc.Call, sc.Record = b.call, b.observing(sc.Record)
	sc.Folders = append(sc.Folders, session.Folder{Name: "servers", Aliases: []string{sitePackages + "servers"}, Refresh: b.fill})
	sc.OnRemoved, sc.OnRunAbandoned, sc.InterruptedCalls = b.forget, b.givenUp, b.cutShort
	return b, nil
}

// instance names this state folder's paddocks to servers that call them back, and tells
// nothing else.
func (p *program) instance() string {
	host, _ := os.Hostname() // without one the folder alone tells them apart
	sum := sha256.Sum256([]byte(host + "\x00" + p.places.state))
	return hex.EncodeToString(sum[:16])
}

func (b *bindings) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	put := func(name string, data []byte) (string, error) {
		path, err := run.Put(name, data)
		return "/workspace/" + path, err // wherever the program is by then
	}
	ctx = approval.WithSuspend(ctx, run.Suspend)
	return b.broker.Call(ctx, broker.Run{Session: brokered(run.Owner, run.Session), Execution: run.Execution, Put: put, Inherited: broker.InheritedFrom(ctx)}, c)
}

// observing has the broker hear of what it has to do with, and passes everything on: a
// fork gets the servers that its parent has bound, and of a run that has ended nobody
// asks any more which calls it made.
func (b *bindings) observing(next func(context.Context, session.Event) error) func(context.Context, session.Event) error {
	return func(ctx context.Context, e session.Event) error {
		switch s := brokered(e.Owner, e.Session); {
		case e.Action == session.Creating && e.Parent != "" && e.Err == nil:
			if err := b.broker.Copy(brokered(e.Owner, e.Parent), s); err != nil {
				b.log.WarnContext(ctx, "a fork has not the servers that its parent bound", "session", e.Session, "cause", err)
			}
		case e.Action == session.Executing && !e.Begun && !e.Waits: // else it may go on yet
			b.broker.Finished(broker.Run{Session: s, Execution: e.Execution})
		}
		return next(ctx, e)
	}
}

func (b *bindings) fill(ctx context.Context, owner session.Owner, id session.ID, dir string) error {
	b.broker.Await(ctx, brokered(owner, id), session.ProgramOf(ctx))
	return b.broker.Provide(ctx, brokered(owner, id), dir)
}

func (b *bindings) forget(owner session.Owner, id session.ID) {
	b.waiting.forget(owner, id)
	b.broker.Forget(brokered(owner, id))
}

// givenUp is told of a run that waited for a person and will not go on.
func (b *bindings) givenUp(owner session.Owner, id session.ID, execution string) {
	b.waiting.givenUp(owner, id, execution)
	b.broker.Finished(broker.Run{Session: brokered(owner, id), Execution: execution})
}

// cutShort is asked what runs called that ended with the process that had their session.
func (b *bindings) cutShort(owner session.Owner, id session.ID, but string) (news string, done func()) {
	return b.broker.CutShort(brokered(owner, id), but)
}

func brokered(owner session.Owner, id session.ID) broker.Session {
	return broker.Session{Owner: string(owner), ID: string(id)}
}

// chosen tells which of the operator's servers a session has; nil: all.
func (b *bindings) chosen(s broker.Session) (*[]string, error) {
	info, err := b.sessions.Info(session.Owner(s.Owner), session.ID(s.ID))
	return info.Settings.Servers, err
}

func (b *bindings) closeServers() {
	for _, k := range b.servers {
		k.close()
	}
}

// Close ends the calls and the connections.
func (b *bindings) Close() error {
	err := b.broker.Close()
	b.closeServers()
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

package app

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/approval"
	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/fault"
	"paddock/internal/mcpserver"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	webapprovals "paddock/internal/web/approvals"
)

// approvals are the calls of tools that wait for a person, of a state folder.
type approvals struct {
	store *approval.Store
	log   *slog.Logger
}

// Approvals opens them for a command that opens no App; log is its audit log.
func (env *Env) Approvals(log *audit.Log) *approval.Store { return env.newApprovals(log).store }

// newApprovals opens them; each decision is recorded in the audit log.
func (env *Env) newApprovals(log *audit.Log) *approvals {
	return &approvals{log: env.Log, store: approval.Open(filepath.Join(env.StateDir, "approvals"), approval.Options{
		TTL: time.Duration(env.Config.Approvals.TTLHours) * time.Hour, Log: env.Log,
		Record: func(ctx context.Context, a approval.Approval) error { return log.Write(ctx, decided(a)) },
	})}
}

// decided is what the audit log has of an approval. Whose words it is about is not in it:
// the arguments have a digest.
func decided(a approval.Approval) audit.Record {
	r := audit.Record{
		Principal: a.Owner, Session: a.Session, Execution: a.Execution, Outcome: audit.Success,
		Target: a.ID + " " + a.Server + "." + a.Tool + " " + a.ArgumentsDigest,
	}
	switch a.State {
	case approval.Granted:
		r.Action, r.Principal, r.Reason = audit.ApprovalGrant, a.By, a.Reason
	case approval.Denied:
		r.Action, r.Principal, r.Reason = audit.ApprovalDeny, a.By, a.Reason
	case approval.Used:
		r.Action = audit.ApprovalUse
	case approval.Withdrawn:
		r.Action = audit.ApprovalWithdraw
	default:
		r.Action = audit.ApprovalRequest
	}
	return r
}

// approve waits until somebody has decided about a call; see broker.Config.Approve. A nil
// error is a grant that is used up: the call has to be made now.
func (a *approvals) approve(ctx context.Context, c broker.Asked) error {
	r := approval.Request{
		Key: approval.Key{Owner: c.Owner, Session: c.ID, Execution: c.Execution, Number: c.Number},
		// What a server says of its tool belongs to what was allowed.
		Call:        approval.Call{Server: c.Server, Definition: c.ServerKey + "/" + c.Fingerprint, Tool: c.Tool, Arguments: c.Arguments},
		Description: c.Description,
	}
	return a.store.Approve(ctx, r, session.ErrSuspended)
}

// withdraw takes back what a run waited for that will not go on; empty: what any run of the
// session did.
func (a *approvals) withdraw(owner session.Owner, id session.ID, execution string) {
	if _, err := a.store.Withdraw(context.Background(), string(owner), string(id), execution); err != nil {
		// It lets nothing through all the same, and expires.
		a.log.Warn("cannot withdraw the approvals of an abandoned run", "session", id, "execution", execution, "cause", fault.CauseOf(err))
	}
}

// approvalsAPI serves them over HTTP.
func (a *App) approvalsAPI(beyond beyondFunc) (http.Handler, error) {
	h, err := webapprovals.New(webapprovals.Config{Store: a.approvals.store, Beyond: beyond, Log: a.Log})
	if err != nil {
		return nil, err
	}
	return telemetry.Joined(h), nil
}

// Resume has a server go on with what waited for a person, until stop is called.
func Resume(s *mcpserver.Server, owner session.Owner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.Resume(ctx, owner) })
	return func() {
		cancel()
		watching.Wait()
		s.Close()
	}
}

// Questions are the calls that wait for a person, for who asks them here.
func (a *App) Questions() *approval.Store { return a.approvals.store }

package app

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"paddock/internal/audit"
	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/mcpserver"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/telemetry"
)

// openTelemetry begins to measure as the configuration says. What serves HTTP
// can be scraped.
func (env *Env) openTelemetry(ctx context.Context) (*telemetry.Telemetry, error) {
	c := env.Config.Telemetry
	return telemetry.Open(ctx, telemetry.Config{
		Service: c.Service, Version: env.Version, Endpoint: c.Endpoint, TracesEndpoint: c.TracesEndpoint, MetricsEndpoint: c.MetricsEndpoint,
		Disabled: c.Disabled, Scrape: env.Transport == OverHTTP, Log: env.Log,
	})
}

// AuditFolder is where the audit log is.
func (env *Env) AuditFolder() string { return filepath.Join(env.StateDir, "audit") }

// OpenAudit makes the audit log for a command that opens no App.
func (env *Env) OpenAudit() *audit.Log { return env.openAudit(nil) }

// openAudit makes the audit log; t counts what it does not take.
func (env *Env) openAudit(t *telemetry.Telemetry) *audit.Log {
	c := env.Config.Audit
	return audit.New(audit.Config{
		Dir: env.AuditFolder(), Mode: audit.Mode(c.Mode), Transport: cmp.Or(env.Transport, OverCLI), KeepDays: int(c.KeepDays),
		IncludeCode: c.IncludeCode, Sync: c.Sync, Failed: t.AuditFailed, Log: env.Log,
	})
}

// record passes on what happens in sessions to the audit log and to telemetry. The audit
// log's error is the program's.
func (b *base) record(ctx context.Context, e session.Event) error {
	if e.Action == session.Executing && !e.Begun {
		b.telemetry.Execution(ctx, measured(e))
	}
	return b.Audit.Write(ctx, recorded(e))
}

// outcome says how an action ended, in one word.
func outcome(e session.Event) string {
	switch {
	case e.Err != nil:
		return audit.Error
	case e.Action == session.Executing && e.Exit.Cause == sandbox.Waiting:
		return audit.Waiting
	case e.Action == session.Executing && !ranWell(e.Exit):
		return audit.Failure
	}
	return audit.Success
}

// ranWell reports whether a program ended without an error, or waits for a person.
func ranWell(e sandbox.Exit) bool {
	return (e.Cause == sandbox.Exited || e.Cause == sandbox.Waiting) && e.Code == 0 && e.Error == nil
}

func measured(e session.Event) telemetry.Execution {
	m := telemetry.Execution{
		Language: e.Language, Isolation: e.Isolation, Engine: e.Exit.Engine, Outcome: outcome(e),
		Queue: e.Queued, Start: e.Start, Run: e.Wall, CPU: e.Exit.Usage.CPU, Fuel: e.Exit.Usage.Fuel,
	}
	if by := mcpserver.StoppedBy(e.Exit.Cause); by != "" {
		m.Outcome = by
	}
	return m
}

func recorded(e session.Event) audit.Record {
	r := audit.Record{
		Action: string(e.Action), Principal: string(e.Owner), Session: string(e.Session), Execution: e.Execution,
		Language: e.Language, Isolation: e.Isolation, Code: e.Code,
	}
	if e.Continued {
		r.Reason = "continued"
	}
	switch {
	case e.Begun:
		r.Phase = audit.Begin
		return r
	case e.Action == session.Executing:
		r.Phase = audit.End
	}
	r.Outcome = outcome(e)
	if e.Expired {
		r.Reason = "expired"
	}
	switch {
	case e.Err != nil:
		r.ErrorType = string(fault.KindOf(e.Err))
	case e.Action == session.Executing:
		r.Engine, r.StoppedBy = e.Exit.Engine, mcpserver.StoppedBy(e.Exit.Cause)
		if e.Exit.Cause == sandbox.Waiting {
			r.Reason = "waiting"
		}
		if e.Exit.Error != nil {
			r.ErrorType = e.Exit.Error.Type
		}
		r.Usage = &audit.Usage{
			CPUMS: milliseconds(e.Exit.Usage.CPU), WallMS: milliseconds(e.Wall), MemoryBytes: e.Exit.Usage.Memory, Fuel: e.Exit.Usage.Fuel, EgressBytes: e.Egress,
		}
	}
	return r
}

// live counts what there is now. Calls that wait at the gate are first in a session's queue.
func live(s session.Stats, g limit.Load) telemetry.Live {
	return telemetry.Live{
		Sessions: s.Sessions, Interpreters: s.Interpreters, Running: g.Running, Queued: s.Queued + g.Waiting, MemoryBytes: s.Memory, DiskBytes: s.Disk,
		Pooled: s.Pooled, PoolHits: s.PoolHits, PoolMisses: s.PoolMisses,
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

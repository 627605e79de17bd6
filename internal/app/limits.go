package app

import (
	"context"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/session"
)

// newGate makes what shares this process out among its clients.
func newGate(c *config.Config) (*limit.Gate, error) {
	l := c.Limits
	return limit.New(limit.Config{
		Requests: int(c.HTTP.RateLimitRequests), TotalRequests: int(l.Requests), Window: c.HTTP.RateLimitWindow,
		Concurrent: int(c.HTTP.MaxConcurrentRequests), TotalConcurrent: int(l.ConcurrentRequests),
		Streams: int(l.ClientStreams), TotalStreams: int(l.Streams),
		Executions: int(l.ClientExecutions), TotalExecutions: int(l.Executions),
		Queue: int(l.QueuedClient), TotalQueue: int(l.QueuedExecutions), Wait: l.QueueTime,
	})
}

// CheckLimits says what is wrong with the configuration's limits.
func (env *Env) CheckLimits() error {
	_, err := newGate(env.Config)
	return err
}

// admitRun waits until one more program of an owner may run. It is [session.Config].Admit.
func (b *base) admitRun(ctx context.Context, owner session.Owner) (release func(), err error) {
	release, err = b.gate.Enter(ctx, string(owner))
	if fault.KindOf(err) == fault.Exhausted {
		b.telemetry.Rejected(ctx, "executions")
	}
	return release, err
}

// share bounds what the sessions of an owner, and of all, take together.
func share(sc *session.Config, c *config.Config) {
	l := c.Limits
	sc.MaxSessions, sc.OwnerDiskBytes = int(l.Sessions), l.ClientDiskBytes
	// One interpreter can always run, however small the machine.
	sc.TotalMemoryBytes, sc.OwnerMemoryBytes = l.MemoryBytes, l.ClientMemoryBytes
	if sc.TotalMemoryBytes == 0 {
		sc.TotalMemoryBytes = max(limit.MachineMemory(), sc.MemoryBytes)
	}
	if sc.OwnerMemoryBytes == 0 {
		sc.OwnerMemoryBytes = max(sc.TotalMemoryBytes/2, sc.MemoryBytes)
	}
}

package cli

import (
	"context"

	"paddock/internal/cli/config"
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

// share bounds what the sessions of an owner, and of all, take together.
func share(sc *session.Config, c *config.Config, g *limit.Gate) {
	l := c.Limits
	sc.Admit = func(ctx context.Context, o session.Owner) (func(), error) { return g.Enter(ctx, string(o)) }
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

package app

import (
	"context"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/session"
)

// gate decides what clients may do now, by their names. A [limit.Gate] does for one process;
// where several machines share, another one asks the client's home, and bounds by itself how
// long it waits for that. It is safe for concurrent use.
type gate interface {
	// Request counts one request of a client; a fault.Exhausted says when the next may be made.
	Request(client string) error
	// Hold and Listen take a request, or a stream, in hand until release is called. They do
	// not wait for others to let theirs go.
	Hold(client string) (release func(), err error)
	Listen(client string) (release func(), err error)
	// Enter waits until one more program of a client may run; leave says that it has ended.
	Enter(ctx context.Context, client string) (leave func(), err error)
	// Load is what this process has in hand.
	Load() limit.Load
}

var _ gate = (*limit.Gate)(nil)

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

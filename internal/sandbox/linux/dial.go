//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"fmt"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

var (
	_ sandbox.Dialer   = (*Backend)(nil)
	_ sandbox.EnvdHost = (*Backend)(nil)
)

// Dial connects to a port of an owner's box. The box has nothing but a loopback
// network of its own: the bytes go through the agent.
func (b *Backend) Dial(ctx context.Context, owner, box string, port uint16) (sandbox.Stream, error) {
	m, err := b.runningMachine(owner, box)
	if err != nil {
		return nil, err
	}
	s, err := m.client.Dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to port %d: %w", port, err)
	}
	return s, nil
}

// DialEnvd connects to the daemon of an owner's box.
func (b *Backend) DialEnvd(ctx context.Context, owner, box string) (sandbox.Stream, error) {
	m, err := b.runningMachine(owner, box)
	if err != nil {
		return nil, err
	}
	s, err := m.client.DialEnvd(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the daemon: %w", err)
	}
	return s, nil
}

func (b *Backend) runningMachine(owner, box string) (*machine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machines[owner+"\x00"+box]
	if m == nil || !m.running() {
		return nil, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	return m, nil
}

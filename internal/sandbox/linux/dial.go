//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"fmt"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

var _ sandbox.Dialer = (*Backend)(nil)

// Dial connects to a port of an owner's box. The box has nothing but a loopback
// network of its own: the bytes go through the agent.
func (b *Backend) Dial(ctx context.Context, owner, box string, port uint16) (sandbox.Stream, error) {
	b.mu.Lock()
	m := b.machines[owner+"\x00"+box]
	b.mu.Unlock()
	if m == nil || !m.running() {
		return nil, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	s, err := m.client.Dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("connecting to port %d: %w", port, err)
	}
	return s, nil
}

package session

import (
	"context"

	"paddock/internal/fault"
	"paddock/internal/loopback"
	"paddock/internal/sandbox"
)

// publish opens the ports of the session's machine, which is about to boot. One
// that is taken is a fault.Conflict, and then none is open. It works twice.
func (r *machineResidence) publish(ctx context.Context) error {
	s, machine := r.s, r.machineSettings()
	if r.ports != nil || machine == nil || len(machine.Ports) == 0 {
		return nil
	}
	dialer, ok := r.backend.(sandbox.Dialer)
	if !ok {
		return fault.New(fault.Unsupported, "the isolation %q publishes no ports", r.backend.Name()).WithHint("omit ports")
	}
	var all []loopback.Port
	for _, p := range machine.Ports {
		all = append(all, loopback.Port(p))
	}
	dial := func(ctx context.Context, port uint16) (loopback.Stream, error) {
		return dialer.Dial(ctx, string(s.owner), string(s.id), port)
	}
	ports, err := loopback.Publish(ctx, all, dial, s.manager.log.With("session", s.id))
	if err != nil {
		return err
	}
	r.ports = ports
	return nil
}

// unpublish closes the ports, and what is connected to them, and waits.
func (r *machineResidence) unpublish() {
	if r.ports != nil {
		r.ports.Close()
		r.ports = nil
	}
}

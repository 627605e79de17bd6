package session

import (
	"context"
	"maps"
	"net"

	"paddock/internal/sandbox"
)

// Network is the way out that a session's machine has.
type Network struct {
	// Proxy serves the connections of the session's programs; see sandbox.Spec.
	Proxy func(ctx context.Context, conn net.Conn)
	// Env is how programs find it without being told. What the Config and the session
	// have in their environment goes before it.
	Env map[string]string
}

// network completes the description of an interpreter in a machine: there is a way out,
// where somebody gives one. It is called before the environment is filled.
func (s *session) network(spec *sandbox.Spec, settings Settings) {
	give := s.manager.config.Network
	if give == nil || !hasMachines(s.backend) {
		return
	}
	if n := give(s.owner, s.id, settings); n != nil {
		spec.Proxy = n.Proxy
		maps.Copy(spec.Env, n.Env)
	}
}

package session

import (
	"context"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Keep has a session stay in memory until release is called, which works twice: it does not
// fall asleep by itself, and does not expire.
func (m *Manager) Keep(owner Owner, id ID) (release func(), err error) {
	_, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(done), nil
}

// DialEnvd connects to the daemon for E2B's clients in the session's machine (package envd);
// ctx bounds only that. Until the connection is closed the session does not fall asleep by
// itself. A machine that does not run is a fault.NotFound: Boot boots it, or wakes it where it
// was saved. A session whose isolation has no machines is a fault.Unsupported.
func (m *Manager) DialEnvd(ctx context.Context, owner Owner, id ID) (sandbox.Stream, error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	conn, err := s.dialEnvd(ctx)
	if err != nil {
		done()
		return nil, err
	}
	return &connection{Stream: conn, done: sync.OnceFunc(done)}, nil
}

func (s *session) dialEnvd(ctx context.Context) (sandbox.Stream, error) {
	if s.backend == nil {
		return nil, s.backendErr
	}
	if err := s.checkNotHalted(); err != nil {
		return nil, err
	}
	host, ok := s.backend.(sandbox.EnvdHost)
	if !ok {
		return nil, fault.New(fault.Unsupported, "the isolation %q has no machines", s.backend.Name()).WithHint("use the isolation \"linux\"")
	}
	// What it starts is not in what was saved.
	s.residence.afterRun()
	return guard("connecting", func() (sandbox.Stream, error) { return host.DialEnvd(ctx, string(s.owner), string(s.id)) })
}

package sessiontest

import (
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Backend is a backend of a test, which says how many interpreters live in it.
type Backend interface {
	sandbox.Backend
	Live() int
	Close() error
}

// Open makes a Manager over a backend, after those that config has, in a folder of the
// test's if config names none. Both are closed at the test's end, when no interpreter may live.
func Open(t testing.TB, config session.Config, backend Backend) *session.Manager {
	t.Helper()
	if config.Dir == "" {
		config.Dir = t.TempDir()
	}
	config.Backends = append(config.Backends, backend)
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := backend.Live(); n != 0 {
			t.Errorf("%d interpreters live on, want none", n)
		}
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

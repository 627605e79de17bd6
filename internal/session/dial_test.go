package session_test

import (
	"errors"
	"io"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// dials sends a text to a port, and gives what comes back until the end.
func dials(t *testing.T, m *session.Manager, id session.ID, port uint16) (string, error) {
	t.Helper()
	c, err := m.Dial(t.Context(), alice, id, port)
	if err != nil {
		return "", err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, "hello")
		sent <- errors.Join(err, c.CloseWrite())
	}()
	all, err := io.ReadAll(c)
	return string(all), errors.Join(err, <-sent)
}

func TestWhatAProgramListensAtCanBeConnectedTo(t *testing.T) {
	m, b := machines(t, session.Config{})
	id := create(t, m, alice, "")
	if _, err := m.Listens(alice, id); err != nil {
		t.Error(err)
	}
	_, err := dials(t, m, id, 80)
	wantKind(t, err, fault.Unavailable)
	if b.Live() != 0 {
		t.Error("a machine was booted in which nobody can listen")
	}
	command(t, m, id, "serve", "80")
	if got, err := dials(t, m, id, 80); err != nil {
		t.Error(err)
	} else if got != "hello" {
		t.Errorf("dials(t, m, id, 80): got %q, want %q", got, "hello")
	}
	_, err = dials(t, m, id, 81)
	wantKind(t, err, fault.Unavailable)
	_, err = m.Dial(t.Context(), bob, id, 80)
	wantKind(t, err, fault.NotFound)

	c, err := m.Dial(t.Context(), alice, id, 80)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, m.Sleep(alice, id), fault.Conflict)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := m.Halt(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	_, err = dials(t, m, id, 80)
	wantKind(t, err, fault.Conflict)
}

func TestOnlyAMachineThatWasSavedIsWokenByWhoConnects(t *testing.T) {
	m, b := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	command(t, m, id, "serve", "80")
	execute(t, m, id, "x = 41")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	_, err := dials(t, m, id, 80) // the fake's machines forget what listens
	wantKind(t, err, fault.Unavailable)
	if b.Live() == 0 {
		t.Error("it was not woken")
	}
	if r := prints(t, m, id, "print(x)", "41"); r.Notice != "" {
		t.Errorf("the notice is %q", r.Notice)
	}
}

func TestProgramsWithoutAMachineListenNowhere(t *testing.T) {
	b := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	m := sessiontest.Open(t, session.Config{}, b)
	id := create(t, m, alice, "")
	_, err := dials(t, m, id, 80)
	wantKind(t, err, fault.Unsupported)
	_, err = m.Listens(alice, id)
	wantKind(t, err, fault.Unsupported)
	if f := fault.Of(err); f.Hint == "" {
		t.Error("there is no hint")
	}
}

package session_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/session"
)

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestPortsArePublishedWhileTheMachineLives(t *testing.T) {
	m, _ := machines(t, session.Config{})
	port := freePort(t)
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Ports: []session.Port{{Host: port, Guest: 80}}}})
	if err != nil {
		t.Fatal(err)
	}
	reach := func() (string, error) {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "hello"); err != nil {
			return "", err
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return "", err
		}
		all, err := io.ReadAll(conn)
		return string(all), err
	}
	if _, err := reach(); err == nil {
		t.Error("it is reached before it was booted")
	}
	if err := m.Boot(t.Context(), alice, i.ID); err != nil {
		t.Fatal(err)
	}
	if got, _ := reach(); got != "" {
		t.Errorf("where nobody listens there is %q", got)
	}
	command(t, m, i.ID, "serve", "80")
	for range 3 {
		if got, err := reach(); err != nil {
			t.Error(err)
		} else if got != "hello" {
			t.Errorf("reach(): got %q, want %q", got, "hello")
		}
	}
	open, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := m.Halt(t.Context(), alice, i.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives the machine")
	}
	if _, err := reach(); err == nil {
		t.Error("it is reached after it was stopped")
	}
}

func TestAPortThatIsTakenIsOneClearErrorAndLeavesNothing(t *testing.T) {
	m, b := machines(t, session.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, taken := freePort(t), uint16(l.Addr().(*net.TCPAddr).Port)
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Ports: []session.Port{{Host: free, Guest: 80}, {Host: taken, Guest: 81}}}})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Boot(t.Context(), alice, i.ID)
	wantKind(t, err, fault.Conflict)
	f := fault.Of(err)
	expect.Part(t, "f.Message", f.Message, strconv.Itoa(int(taken)))
	if f.Hint == "" {
		t.Error("f.Hint: got none, want one")
	}
	expect.Equal(t, "b.Live()", b.Live(), 0)
	again, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(free))))
	if err != nil {
		t.Fatalf("the other port is still taken: %v", err)
	}
	again.Close()
	l.Close()
	if err := m.Boot(t.Context(), alice, i.ID); err != nil {
		t.Errorf("once it is free: %v", err)
	}
}

func TestTheContextOfABootEndsOnlyTheBoot(t *testing.T) {
	m, _ := machines(t, session.Config{})
	port := freePort(t)
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Ports: []session.Port{{Host: port, Guest: 80}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := m.Boot(ctx, alice, i.ID); err != nil {
		t.Fatal(err)
	}
	cancel()
	command(t, m, i.ID, "serve", "80")
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if i, err := m.List(alice); err != nil {
		t.Errorf("the sessions: got error %v, want none", err)
	} else if !slices.ContainsFunc(i, func(i session.Info) bool { return i.State == session.Live }) {
		t.Errorf("the sessions: got %+v, want a live one among them", i)
	}
}

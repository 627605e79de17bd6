package session_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// named is a network for each session, whose proxy answers with the session's name,
// unless it has the name "closed".
func named(owner session.Owner, id session.ID, set session.Settings) *session.MachineNetwork {
	if set.Name == "closed" {
		return nil
	}
	return &session.MachineNetwork{
		Proxy: func(_ context.Context, conn net.Conn) {
			line, _ := bufio.NewReader(conn).ReadString('\n')
			fmt.Fprint(conn, owner, " ", id, " ", line)
		},
		Env: map[string]string{"HTTP_PROXY": "here", "TZ": "its own", "MINE": "its own", "LATE": "its own"},
	}
}

func TestASessionsMachineHasTheWayOutThatItWasGiven(t *testing.T) {
	m, _ := machines(t, session.Config{Network: &sessiontest.Network{OnMachine: named}, Env: map[string]string{"MINE": "the operator's"}})
	id := create(t, m, alice, "")
	prints(t, m, id, `print(proxied("here"))`, fmt.Sprintf("alice %s here", id))
	prints(t, m, id, `print(env("HTTP_PROXY"), env("TZ"), env("MINE"))`, "here its own the operator's")
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Env: map[string]string{"LATE": "the session's"}}})
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, i.ID, `print(env("LATE"), env("HTTP_PROXY"))`, "the session's here")
	closed, err := m.Create(t.Context(), alice, "", session.Settings{Name: "closed"})
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, closed.ID, `print(proxied("here"), len(env("HTTP_PROXY")))`, "refused 0")
	none, _ := machines(t, session.Config{})
	prints(t, none, create(t, none, alice, ""), `print(proxied("here"))`, "refused")
	plain := sessiontest.Open(t, session.Config{Network: &sessiontest.Network{OnMachine: named}}, sandboxtest.NewFake(sandboxtest.FakeConfig{}))
	prints(t, plain, create(t, plain, alice, ""), `print(proxied("here"), len(env("HTTP_PROXY")))`, "refused 0")
}

func TestAMachineThatWasBootedAheadHasTheWayOutOfItsSession(t *testing.T) {
	pooled(t, session.Config{Pool: 2, Network: &sessiontest.Network{OnMachine: named}}, func(t *testing.T, m *session.Manager, b *ahead) {
		pass(time.Second)
		wantReady(t, m, 1)
		id := create(t, m, alice, "")
		prints(t, m, id, `print(proxied("here"))`, fmt.Sprintf("alice %s here", id))
		if s := m.Stats(); s.PoolHits != 1 {
			t.Errorf("counted is %+v", s)
		}
		pass(time.Second)
		wantReady(t, m, 1)
		closed := settings(t, m, alice, session.Settings{Name: "closed"})
		prints(t, m, closed, `print(proxied("here"))`, "refused")
		if s := m.Stats(); s.PoolHits != 1 {
			t.Errorf("one with a way out was given to whom has none: %+v", s)
		}
	})
}

// Attack 42: no program gets out through another session's way.
func TestThePortOfTheWayOutIsNotPublished(t *testing.T) {
	m, _ := machines(t, session.Config{Network: &sessiontest.Network{OnMachine: named}})
	_, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Ports: []session.Port{{Host: freePort(t), Guest: sandbox.ProxyPort}}}})
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("it is published: %v", err)
	}
}

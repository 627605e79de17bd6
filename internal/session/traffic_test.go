package session_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// meter counts a byte for each call of a program's, from what a session had before.
type meter struct {
	mu       sync.Mutex // guards what follows
	manager  *session.Manager
	used     map[session.ID]session.Traffic
	refusals []string
	closed   []session.ID
}

func (n *meter) config() session.Config {
	return session.Config{
		Tools: &sessiontest.Tools{OnCall: func(_ context.Context, run session.Run, c sandbox.Call) []byte {
			info, err := n.manager.Info(run.Owner, run.Session)
			n.mu.Lock()
			defer n.mu.Unlock()
			if _, there := n.used[run.Session]; !there {
				n.used[run.Session] = info.Traffic
			}
			u := n.used[run.Session]
			u.Requests, u.Sent, u.Received = u.Requests+1, u.Sent+1, u.Received+10
			n.used[run.Session] = u
			if run.InBackground(); err != nil || strings.Contains(string(c.Body), "refuse") {
				n.refusals = append(n.refusals, "it was refused")
			}
			return []byte(`{"value":"sent"}`)
		}},
		Network: &sessiontest.Network{
			OnCheck: func(rules []string) error {
				switch {
				case slices.Contains(rules, "bad rule"):
					return fault.New(fault.Invalid, "a rule is none")
				case slices.Contains(rules, "evil.test"):
					return fault.New(fault.Denied, "evil.test is not for sessions")
				}
				return nil
			},
			OnUsed: func(_ session.Owner, id session.ID) (session.Traffic, bool) {
				n.mu.Lock()
				defer n.mu.Unlock()
				u, there := n.used[id]
				return u, there
			},
			OnRefused: func(session.Owner, session.ID) string {
				n.mu.Lock()
				defer n.mu.Unlock()
				all := strings.Join(n.refusals, " ")
				n.refusals = nil
				return all
			},
			OnDisconnect: func(_ session.Owner, id session.ID) {
				n.mu.Lock()
				defer n.mu.Unlock()
				delete(n.used, id)
				n.closed = append(n.closed, id)
			},
		},
	}
}

func metered(t *testing.T, change func(*session.Config)) (*session.Manager, *meter) {
	n := &meter{used: map[session.ID]session.Traffic{}}
	c := n.config()
	if change != nil {
		change(&c)
	}
	n.manager = manager(t, c, sandboxtest.FakeConfig{})
	return n.manager, n
}

func TestAResultTellsWhatARunSentAndWasRefused(t *testing.T) {
	m, n := metered(t, nil)
	id := create(t, m, alice, "")
	if r := execute(t, m, id, "call('one', '')\ncall('two', '')"); r.Egress != 22 {
		t.Errorf("r.Egress: got %v, want 22", r.Egress)
	} else if r.ToolCalls != 0 {
		t.Errorf("r.ToolCalls: got %v, want 0", r.ToolCalls)
	} else if r.Refused != "" {
		t.Errorf("r.Refused: got %q, want none", r.Refused)
	}
	if r := execute(t, m, id, "call('refuse', '')"); r.Egress != 11 {
		t.Errorf("r.Egress: got %v, want 11", r.Egress)
	} else if r.Refused != "it was refused" {
		t.Errorf("r.Refused: got %q, want %q", r.Refused, "it was refused")
	}
	if r := execute(t, m, id, "1"); r.Egress != 0 {
		t.Errorf("r.Egress: got %v, want 0", r.Egress)
	} else if r.Refused != "" {
		t.Errorf("r.Refused: got %q, want none", r.Refused)
	}
	if len(n.closed) != 0 {
		t.Errorf("closed are %v", n.closed)
	}
}

// What a session has sent counts for as long as there is the session.
func TestWhatASessionSentIsKeptWithIt(t *testing.T) {
	dir := t.TempDir()
	m, n := metered(t, func(c *session.Config) { c.Dir = dir })
	id := create(t, m, alice, "")
	execute(t, m, id, "call('one', '')")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.closed, []session.ID{id}) {
		t.Errorf("closed are %v", n.closed)
	}
	if r := execute(t, m, id, "call('two', '')"); r.Egress != 11 {
		t.Errorf("got %+v", r)
	}
	if _, err := m.Undo(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.closed, []session.ID{id, id}) {
		t.Errorf("after going back closed are %v", n.closed)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := metered(t, func(c *session.Config) { c.Dir = dir })
	if i, err := again.Info(alice, id); err != nil {
		t.Error(err)
	} else if i.Traffic != (session.Traffic{Requests: 2, Sent: 2, Received: 20}) {
		t.Errorf("i.Traffic: got %v, want %v", i.Traffic, (session.Traffic{Requests: 2, Sent: 2, Received: 20}))
	}
	if err := again.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
}

func TestASessionKeepsWhatItMayReach(t *testing.T) {
	dir := t.TempDir()
	m, _ := metered(t, func(c *session.Config) { c.Dir = dir })
	for rule, want := range map[string]fault.Kind{"bad rule": fault.Invalid, "evil.test": fault.Denied} {
		_, err := m.Create(t.Context(), alice, "", session.Settings{Network: &[]string{"good.test", rule}})
		wantKind(t, err, want)
	}
	many := slices.Repeat([]string{"a.test"}, 1001)
	_, err := m.Create(t.Context(), alice, "", session.Settings{Network: &many})
	wantKind(t, err, fault.Invalid)
	narrowed := settings(t, m, alice, session.Settings{Network: &[]string{"good.test"}})
	none := settings(t, m, alice, session.Settings{Network: &[]string{}})
	all := create(t, m, alice, "")
	want := map[session.ID]string{narrowed: "good.test", none: "", all: "all"}
	for _, id := range []session.ID{narrowed, none, all} {
		execute(t, m, id, "x = 1")
		forks, err := m.Fork(t.Context(), alice, id, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := m.Export(t.Context(), alice, id, &file); err != nil {
			t.Fatal(err)
		}
		imported, notice, err := m.Import(t.Context(), alice, "", &file)
		if err != nil {
			t.Fatal(err)
		}
		if notice != "" {
			t.Fatalf("notice: got %q, want none", notice)
		}
		want[forks[0].ID], want[imported.ID] = want[id], want[id]
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := metered(t, func(c *session.Config) { c.Dir = dir })
	for id, rules := range want {
		i, err := again.Info(alice, id)
		got := "all"
		if i.Settings.Network != nil {
			got = strings.Join(*i.Settings.Network, " ")
		}
		if err != nil {
			t.Fatalf("%s: got error %v, want none", id, err)
		}
		expect.Equal(t, fmt.Sprintf("%s: got", id), got, rules)
		if (rules == "") != (i.Settings.Network != nil && len(*i.Settings.Network) == 0) {
			t.Errorf("%s: got the rules %v in its settings, want them empty: %v", id, i.Settings.Network, rules == "")
		}
	}
}

// An archive says what its session wishes for; here is decided what it gets.
func TestAnArchivesRulesAreWishes(t *testing.T) {
	lax := manager(t, session.Config{Network: &sessiontest.Network{}}, sandboxtest.FakeConfig{})
	m, _ := metered(t, nil)
	for _, test := range []struct{ rule, notice, want string }{
		{"evil.test", "not all hosts that it may reach can be reached here: evil.test is not for sessions", "evil.test"},
		{"bad rule", "it reaches no hosts: a rule is none", ""},
	} {
		id := settings(t, lax, alice, session.Settings{Network: &[]string{test.rule}})
		var file bytes.Buffer
		if err := lax.Export(t.Context(), alice, id, &file); err != nil {
			t.Fatal(err)
		}
		i, notice, err := m.Import(t.Context(), alice, "", &file)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", test.rule, err)
		}
		if notice != test.notice {
			t.Fatalf("%s: notice: got %v, want %v", test.rule, notice, test.notice)
		}
		if i.Settings.Network == nil {
			t.Fatalf("%s: i.Settings.Network: got nil, want one", test.rule)
		}
		if strings.Join(*i.Settings.Network, " ") != test.want {
			t.Errorf(`%s: strings.Join(*i.Settings.Network, " "): got %q, want %q`,
				test.rule, strings.Join(*i.Settings.Network, " "), test.want)
		}
	}
}

func TestWithoutANetworkNothingCanBeAskedFor(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	_, err := m.Create(t.Context(), alice, "", session.Settings{Network: &[]string{"good.test"}})
	wantKind(t, err, fault.Denied)
	settings(t, m, alice, session.Settings{Network: &[]string{}})
}

func TestAFolderOfMachinesIsShownToNobodyElse(t *testing.T) {
	c := session.Config{Pool: 2, Backends: []sandbox.Backend{}, Folders: []session.Folder{
		{Name: "servers", Refresh: func(context.Context, session.Owner, session.ID, string) error { return nil }},
		{Name: "network", Machines: true, Refresh: func(_ context.Context, owner session.Owner, _ session.ID, dir string) error {
			return os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(owner), 0o644)
		}},
	}}
	plain := manager(t, c, sandboxtest.FakeConfig{})
	if r := execute(t, plain, create(t, plain, alice, ""), "read('/network/ca.pem')"); r.Exit.Error == nil {
		t.Error("a program without a machine finds it")
	}
	pooled(t, c, func(t *testing.T, m *session.Manager, _ *ahead) {
		pass(time.Second)
		prints(t, m, create(t, m, alice, ""), "print(read('/network/ca.pem'))", "alice")
		if s := m.Stats(); s.PoolHits != 1 {
			t.Errorf("counted is %+v", s)
		}
	})
}

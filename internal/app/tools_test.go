package app

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/journal"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

func TestACallOfAToolIsRecordedWithoutWhatWasSaid(t *testing.T) {
	e := broker.Event{Number: 3, Server: "docs", Tool: "search", ArgumentsDigest: "0a1b", Took: 1500 * time.Microsecond, Verdict: broker.Allowed}
	e.Owner, e.ID, e.Execution = "local", "s-1", "x-1"
	record := func(change func(*broker.Event)) audit.Record {
		changed := e
		change(&changed)
		return recordedCall(changed)
	}
	want := audit.Record{
		Action: audit.ToolCall, Principal: "local", Session: "s-1", Execution: "x-1", Target: "docs/search",
		Call: 3, ArgumentsSHA256: "0a1b", Verdict: "allowed", TookMS: 1.5, Outcome: audit.Success,
	}
	if got := record(func(*broker.Event) {}); !reflect.DeepEqual(got, want) {
		t.Errorf("a call gives %+v, want %+v", got, want)
	}
	for name, c := range map[string]struct {
		change             func(*broker.Event)
		outcome, errorType string
	}{
		"a tool that did not work":    {func(e *broker.Event) { e.ToolFailed = true }, audit.Failure, ""},
		"one that is denied":          {func(e *broker.Event) { e.Verdict, e.Err = broker.Denied, fault.New(fault.Denied, "hush") }, audit.Error, "denied"},
		"one that waits for a person": {func(e *broker.Event) { e.Err = fmt.Errorf("approving: %w", session.ErrSuspended) }, audit.Waiting, ""},
		"a mistake of paddock's":      {func(e *broker.Event) { e.Err = errors.New("hush") }, audit.Error, "internal"},
	} {
		if got := record(c.change); got.Outcome != c.outcome || got.ErrorType != c.errorType {
			t.Errorf("%s gives %+v", name, got)
		}
	}
}

func TestARuleLetsThroughToOneHostAndPort(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.test/mcp": "a.test:443!private", "http://a.test": "a.test:80!private", "http://127.0.0.1:3401/mcp": "127.0.0.1:3401!private",
		"https://[::1]:8443/": "[::1]:8443!private", "HTTP://A.test": "A.test:80!private",
	} {
		rule, err := ruleFor(url)
		if err != nil || rule != want {
			t.Errorf("%s gives %s (%v), want %s", url, rule, err, want)
		}
		if _, err := newTransport(rule); err != nil {
			t.Errorf("%s is not a rule: %v", rule, err)
		}
	}
	if _, err := ruleFor("a.test"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("what is not a URL gives %v", err)
	}
}

// What can be known of servers is known without any of them, and none keeps the others
// from being known.
func TestAServerThatCannotBeUsedKeepsNoOtherFromThat(t *testing.T) {
	p := &Env{Config: &config.Config{}, StateDir: filepath.Join(t.TempDir(), "state")}
	p.Config.Vault.Keyring = "off"
	p.Config.Servers = map[string]config.Server{
		"good": {Command: "tools"}, "bad": {URL: "https://${NO_SUCH_VARIABLE_OF_PADDOCK}/mcp"}, "good_": {Command: "other"},
	}
	if err := p.AddedServers().Add("good", config.Server{Command: "shadowed"}, false); err != nil {
		t.Fatal(err)
	}
	all, err := p.Servers()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fault.Kind{}
	for _, k := range all {
		defer k.Close()
		got[k.Name+" "+k.Origin] = fault.KindOf(k.Err)
		if (k.Err == nil) != (k.definition.Name == k.Name) {
			t.Errorf("%s is %+v (%v)", k.Name, k.definition, k.Err)
		}
	}
	want := map[string]fault.Kind{"bad default": fault.NotFound, "good default": "", "good_ default": "", "good added": fault.Conflict}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it is %v, want %v", got, want)
	}
}

// A run whose continuation failed, and that still waits, finds what its calls came to
// when it goes on after all.
func TestWhatARunCalledIsKeptAsLongAsItWaits(t *testing.T) {
	calls, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	of, err := broker.New(broker.Config{Journal: calls})
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	run := journal.Run{Owner: "local", Session: "s-1", Execution: "x-1"}
	if _, err := calls.Begin(t.Context(), journal.Call{Run: run, Number: 1, Digest: "d"}); err != nil {
		t.Fatal(err)
	}
	observed := &tools{broker: of}
	for _, e := range []struct {
		name  string
		event session.Event
		kept  bool
	}{
		{"it waits", session.Event{Waits: true, Exit: sandbox.Exit{Cause: sandbox.Waiting}}, true},
		{"it is about to go on", session.Event{Begun: true, Continued: true}, true},
		{"it could not go on", session.Event{Waits: true, Continued: true, Err: errors.New("no memory")}, true},
		{"it has ended", session.Event{Continued: true}, false},
	} {
		e.event.Action, e.event.Owner, e.event.Session, e.event.Execution = session.Executing, "local", "s-1", "x-1"
		if err := observed.Record(t.Context(), e.event); err != nil {
			t.Fatal(err)
		}
		if kept := calls.Has(run); kept != e.kept {
			t.Errorf("%s: its calls are kept: %v", e.name, kept)
		}
	}
}

// What a server's program is given of the vault or of this machine's environment is hidden
// in what it says, and what its name tells of.
func TestWhatAServersProgramIsGivenIsHidden(t *testing.T) {
	t.Setenv("A_REGION_OF_MINE", "eu-central-1")
	t.Setenv("AN_OPAQUE_THING", "opaque-1-of-the-environment")
	t.Setenv("A_TOKEN_OF_MINE", "token-of-the-environment")
	p := &Env{Config: &config.Config{}, StateDir: filepath.Join(t.TempDir(), "state")}
	p.Config.Vault.Keyring = "off"
	p.Config.Servers = map[string]config.Server{
		"written": {
			Command: "tools", Args: []string{"--region", "${A_REGION_OF_MINE}", "--token=${A_TOKEN_OF_MINE}"},
			Env: map[string]string{"API_KEY": "key-of-the-file", "THING": "thing ${AN_OPAQUE_THING}", "MODE": "plain-mode", "PATH": "${PATH}:/opt/of-mine", "DATA": "${HOME}/of-mine", "LEVEL": "information"},
		},
		"remote": {URL: "https://mcp.example.com/mcp?api_key=key-of-the-url"},
	}
	if err := p.AddedServers().Add("sealed", config.Server{Command: "tools", Env: map[string]string{"THING": "opaque-1-of-the-vault", "LEVEL": "information"}}, false); err != nil {
		t.Fatal(err)
	}
	all, err := p.Servers()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		defer k.Close()
		if k.Err != nil {
			t.Fatalf("%s: %v", k.Name, k.Err)
		}
		hidden, shown := map[string][]string{
			"written": {"key-of-the-file", "opaque-1-of-the-environment", "token-of-the-environment"},
			"sealed":  {"opaque-1-of-the-vault"},
		}[k.Name], []string{"information", "plain-mode", "eu-central-1", "/opt/of-mine", "an opaque thing", "tools"}
		for _, text := range hidden {
			if got := p.dialOptions(k.definition).Hide.String("a " + text + "."); got != "a (hidden)." {
				t.Errorf("%s: %s becomes %q", k.Name, text, got)
			}
		}
		for _, text := range shown {
			if got := k.definition.Hide.String(text); got != text {
				t.Errorf("%s: %s becomes %q", k.Name, text, got)
			}
		}
	}
}

package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"paddock/internal/audit"
	"paddock/internal/bindings/journal"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/secret"
	"paddock/internal/session"
	"paddock/internal/skill"
)

const hush = "hush-hush-value"

// keeping gives a program and its parts, whose sessions may have these secrets, which are
// kept for local and for bob, for a site that programs reach.
func keeping(t *testing.T, state string, allow ...string) (*Env, *App) {
	t.Helper()
	c, err := config.Load(config.Source{Environ: []string{"PADDOCK_VAULT_KEYRING=off", "PADDOCK_PACKAGES_MACHINE=false"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Network.Allow, c.Secrets.Allow = []string{"api.example.com", "other.example.com"}, allow
	p := &Env{Config: c, StateDir: state, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	p.NewBackends = func(*Env, *session.Life, sandbox.Translator) (Backends, error) {
		return Backends{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})}, nil
	}
	for _, e := range []secret.Entry{{Owner: "local", Name: "ONE"}, {Owner: "local", Name: "FAR"}, {Owner: "bob", Name: "ONE"}} {
		e.Hosts = []string{"api.example.com"}
		if e.Name == "FAR" {
			e.Hosts = []string{"far.example.com"}
		}
		if _, err := p.Secrets().Set(e, secret.NewValue([]byte(hush+e.Name+e.Owner))); err != nil {
			t.Fatal(err)
		}
	}
	o, err := p.Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return p, o
}

// variable is what a program of a session has in a variable.
func variable(t *testing.T, o *App, owner session.Owner, id session.ID, name string) string {
	t.Helper()
	res, err := o.Sessions.Execute(t.Context(), owner, id, session.Request{Code: `print(env("` + name + `"))`, Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout)
}

func TestWhichSecretsASessionIsGivenIsRecorded(t *testing.T) {
	p, o := keeping(t, t.TempDir(), "ONE", "FAR", "LATER")
	made := func(owner session.Owner, settings session.Settings) session.ID {
		i, err := o.Sessions.Create(t.Context(), owner, "", settings)
		if err != nil {
			t.Fatal(err)
		}
		return i.ID
	}
	all, bobs := made(session.Local, session.Settings{}), made("bob", session.Settings{})
	made("eve", session.Settings{})
	made(session.Local, session.Settings{Secrets: &[]string{}})
	if err := p.Secrets().Remove("local", "FAR"); err != nil {
		t.Fatal(err)
	}
	forks, err := o.Sessions.Fork(t.Context(), session.Local, all, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"local " + string(all) + " ONE FAR ", "bob " + string(bobs) + " ONE ", "local " + string(forks[0].ID) + " ONE fork of " + string(all)}
	var got []string
	for r, err := range audit.Read(p.AuditFolder(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%+v", r); strings.Contains(text, hush) || strings.Contains(text, secret.Marker) {
			t.Errorf("a record has more than names: %s", text)
		}
		if r.Action == audit.SecretGive {
			got = append(got, r.Principal+" "+r.Session+" "+r.Target+" "+r.Reason)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, and should have %q", got, want)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.secrets.audit = audit.New(audit.Config{Dir: filepath.Join(file, "audit")}) // it cannot be written
	if _, err := o.Sessions.Create(t.Context(), session.Local, "unseen", session.Settings{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a session that is given secrets without a record: %v", err)
	}
	if v, err := o.secrets.Variables(session.Local, "unseen"); len(v) > 0 || err != nil {
		t.Errorf("it has %v, %v", v, err)
	}
}

func TestSessionsHaveTheirOwnersSecretsThatAreAllowed(t *testing.T) {
	_, o := keeping(t, t.TempDir(), "ONE", "FAR", "LATER")
	seen := map[string]bool{}
	for owner, want := range map[session.Owner][]string{session.Local: {"ONE", "FAR"}, "bob": {"ONE"}, "eve": nil} {
		i, err := o.Sessions.Create(t.Context(), owner, "same", session.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if got := i.Settings.Secrets; want == nil && got != nil || want != nil && (got == nil || !slices.Equal(*got, want)) {
			t.Errorf("a session of %s has %v", owner, got)
		}
		v := variable(t, o, owner, "same", "ONE")
		if seen[v] || want != nil && !strings.HasPrefix(v, secret.Marker+"ONE-") {
			t.Errorf("a program of %s has %q", owner, v)
		}
		seen[v] = true
	}
	if err := o.Sessions.Destroy(t.Context(), "bob", "same"); err != nil {
		t.Fatal(err)
	}
	if v := variable(t, o, session.Local, "same", "ONE"); !seen[v] || v == "" {
		t.Errorf("after another owner's session has ended it has %q", v)
	}
}

func TestASessionAsksForFewerSecretsAndNeverMore(t *testing.T) {
	state := t.TempDir()
	_, o := keeping(t, state, "ONE", "LATER")
	for name, want := range map[string]fault.Kind{"FAR": fault.Denied, "LATER": fault.NotFound, "lower": fault.Invalid} {
		_, err := o.Sessions.Create(t.Context(), session.Local, "", session.Settings{Secrets: &[]string{"ONE", name}})
		if fault.KindOf(err) != want || fault.Of(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	id := made(t, o, session.Settings{Secrets: &[]string{}})
	if v := variable(t, o, session.Local, id, "ONE"); v != "" {
		t.Errorf("a session that wished for none has %q", v)
	}
	id = made(t, o, session.Settings{Secrets: &[]string{"ONE", "ONE"}})
	if err := o.secrets.store.Remove("local", "ONE"); err != nil {
		t.Fatal(err)
	}
	forks, err := o.Sessions.Fork(t.Context(), session.Local, id, "", 1)
	if err != nil {
		t.Fatal("a fork of a session whose secret is no more:", err)
	}
	if v := variable(t, o, session.Local, forks[0].ID, "ONE"); v != "" {
		t.Errorf("its programs find %q", v)
	}
}

func TestWithoutAllowanceNoSessionHasSecrets(t *testing.T) {
	_, o := keeping(t, t.TempDir())
	if v := variable(t, o, session.Local, made(t, o, session.Settings{}), "ONE"); v != "" {
		t.Errorf("a program has %q", v)
	}
	_, err := o.Sessions.Create(t.Context(), session.Local, "", session.Settings{Secrets: &[]string{"ONE"}})
	if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Of(err).Hint, "secrets.allow") {
		t.Errorf("asking for one: %v", err)
	}
}

// What a tool answers may hold a value that the server knows from elsewhere.
func TestToolsAnswersHoldNoValues(t *testing.T) {
	_, o := keeping(t, t.TempDir(), "ONE")
	value := hush + "ONElocal"
	var put string
	call := o.secrets.redacted(func(_ context.Context, run session.Run, _ sandbox.Call) []byte {
		if _, err := run.Put("file", []byte("in a file "+value)); err != nil {
			t.Error(err)
		}
		return []byte(`{"value":"` + value + `"}`)
	})
	for _, has := range []bool{true, false} {
		set := session.Settings{}
		if !has {
			set.Secrets = &[]string{}
		}
		run := session.Run{Owner: session.Local, Session: made(t, o, set), Put: func(_ string, data []byte) (string, error) {
			put = string(data)
			return "", nil
		}}
		answer := string(call(t.Context(), run, sandbox.Call{}))
		if strings.Contains(answer+put, value) == has || has && !strings.Contains(put, secret.Marker+"ONE-") {
			t.Errorf("with secrets %v: the answer is %s, the file %s", has, answer, put)
		}
	}
}

// A skill's script has what the skill declares of what sessions may have, and who runs it
// is told the rest.
func TestASkillHasWhatItDeclares(t *testing.T) {
	_, o := keeping(t, t.TempDir(), "ONE", "FAR")
	m := skill.Manifest{Hosts: []string{"api.example.com", "evil.test"}, Secrets: []string{"ONE", "FAR", "NONE"}}
	got, warnings, err := o.Declared(m)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Grants{Hosts: []string{"api.example.com"}, Secrets: []string{"ONE", "FAR"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	for _, want := range []string{
		"the skill declares the host evil.test, which programs may not reach here", "the skill declares the secret NONE: NONE is not among the secrets",
		"the secret FAR is for far.example.com, which programs may not reach",
	} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("the warnings are %q, want one that begins with %q", warnings, want)
		}
	}
	got, warnings, err = o.Declared(skill.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Hosts) != 0 || len(got.Secrets) != 0 {
		t.Errorf("a skill that declares nothing has %v, want nothing", got)
	}
	if len(warnings) > 0 {
		t.Errorf("a skill that declares nothing gives the warnings %q, want none", warnings)
	}
}

// What a call came to is written down for a run that waits.
func TestTheJournalOfCallsHoldsNoValues(t *testing.T) {
	state := t.TempDir()
	_, o := keeping(t, state, "ONE")
	c := journal.Call{Run: journal.Run{Owner: "local", Session: string(made(t, o, session.Settings{})), Execution: "e"}, Number: 1, Digest: "d"}
	calls, err := o.openJournal(o.secrets.Clean)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := calls.Begin(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := calls.End(t.Context(), c, journal.Outcome{Answer: []byte(`{"value":"` + hush + `ONElocal"}`)}); err != nil {
		t.Fatal(err)
	}
	known, err := calls.Look(t.Context(), c)
	if err != nil || known == nil {
		t.Fatalf("the journal has %+v, %v, want the call", known, err)
	}
	if strings.Contains(string(known.Answer), hush) {
		t.Errorf("the journal has %s, want no value of a secret in it", known.Answer)
	}
	if !strings.Contains(string(known.Answer), secret.Marker+"ONE-") {
		t.Errorf("the journal has %s, want a placeholder in it", known.Answer)
	}
}

// What is left of a session of which nobody was told that it has ended is not another's.
func TestASessionHasNothingOfAnotherOfItsName(t *testing.T) {
	_, o := keeping(t, t.TempDir(), "ONE")
	if _, err := o.secrets.store.Grant(secret.GrantRequest{Session: keyOf(session.Local, "name"), Owner: "local", Names: []string{"ONE"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Sessions.Create(t.Context(), session.Local, "name", session.Settings{Secrets: &[]string{}}); err != nil {
		t.Fatal(err)
	}
	if left, err := o.secrets.Variables(session.Local, "name"); err != nil || len(left) > 0 {
		t.Errorf("it has %v, %v", left, err)
	}
}

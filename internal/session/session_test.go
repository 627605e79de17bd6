package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

const alice = session.Owner("alice")

// manager makes a Manager over a fake; both are closed at the test's end.
func manager(t *testing.T, config session.Config, fake sandboxtest.FakeConfig) *session.Manager {
	t.Helper()
	return sessiontest.Open(t, config, sandboxtest.NewFake(fake))
}

func create(t *testing.T, m *session.Manager, owner session.Owner, id session.ID) session.ID {
	t.Helper()
	i, err := m.Create(t.Context(), owner, id, session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return i.ID
}

func execute(t *testing.T, m *session.Manager, id session.ID, code string) session.Result {
	t.Helper()
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: code, Language: "python"})
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return r
}

// prints checks what a program prints, and that it ends well.
func prints(t *testing.T, m *session.Manager, id session.ID, code, want string) session.Result {
	t.Helper()
	r := execute(t, m, id, code)
	expect.Equal(t, fmt.Sprintf("%s: r.Exit.Cause", code), r.Exit.Cause, sandbox.Exited)
	expect.Equal(t, fmt.Sprintf("%s: r.Exit.Error", code), r.Exit.Error, nil)
	expect.Equal(t, fmt.Sprintf("%s: r.Stdout", code), strings.TrimSpace(r.Stdout), want)
	return r
}

func wantKind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("got the fault %q (%v), want %q", got, err, want)
	}
}

func TestConfigReportsAllMistakesAtOnce(t *testing.T) {
	_, err := session.New(session.Config{DefaultTimeout: 2 * time.Hour, IdleTTL: -1})
	for _, want := range []string{"state folder", "backend", "timeout", "negative"} {
		if err == nil {
			t.Fatal("got no error, want one")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}

func TestASessionKeepsVariablesAndFiles(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 42")
	r := execute(t, m, id, "write('out.txt', 'hello')\nwrite('/tmp/scratch', 'y')\nprint(x)\neprint('warned')\ndisplay('text/html', 'page')\nx * 2")
	want := session.Result{
		Session: id, Execution: r.Execution, Isolation: "fake", Stdout: "42\n", Stderr: "warned\n", Exit: r.Exit, Wall: r.Wall,
		Displays: []sandbox.Display{{MIME: "text/html", Data: []byte("page")}},
		Changes:  []session.Change{{Path: "out.txt", Change: "added", Size: 5}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if r.Exit.Result != "84" {
		t.Errorf("r.Exit.Result: got %q, want %q", r.Exit.Result, "84")
	}
	tree, done, err := m.Files(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := tree.Write("in.txt", []byte("from outside")); err != nil {
		t.Fatal(err)
	}
	if r := prints(t, m, id, "print(read('/app/in.txt'))\nremove('out.txt')", "from outside"); len(r.Changes) != 1 {
		t.Errorf("len(r.Changes): got %d, want 1: %v", len(r.Changes), r.Changes)
	} else if r.Changes[0].Change != "removed" {
		t.Errorf("r.Changes[0].Change: got %q, want %q", r.Changes[0].Change, "removed")
	}
}

func TestEachRuntimeHasItsOwnInterpreter(t *testing.T) {
	m := manager(t, session.Config{Env: map[string]string{"GREETING": "hi", "TZ": "Europe/Berlin"}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "both")
	execute(t, m, id, "x = 1")
	for _, language := range []string{"javascript", "typescript"} {
		r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "x = 2\nprint(x)", Language: language})
		if err != nil {
			t.Fatalf("%s: got error %v, want none", language, err)
		}
		if r.Stdout != "2\n" {
			t.Errorf("%s: r.Stdout: got %q, want %q", language, r.Stdout, "2\n")
		}
	}
	prints(t, m, id, "print(x)", "1")
	prints(t, m, id, "print(env('GREETING'), env('TZ'), env('HOME'))", "hi Europe/Berlin /workspace")
	if i, err := m.Info(alice, id); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "i.State", i.State, session.Live)
		expect.Equal(t, "i.Executions", i.Executions, 5)
	}
}

func TestAFailingProgramIsAResult(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r := execute(t, m, id, "x = 1\nraise ValueError('no')")
	if r.Exit.Code != 1 {
		t.Fatalf("r.Exit.Code: got %v, want 1", r.Exit.Code)
	}
	if r.Exit.Error == nil {
		t.Fatal("r.Exit.Error: got nil, want one")
	}
	expect.Equal(t, "r.Exit.Error.Type", r.Exit.Error.Type, "ValueError")
	expect.Equal(t, "r.Exit.Error.Line", r.Exit.Error.Line, 2)
	expect.Equal(t, "r.Notice", r.Notice, "")
	prints(t, m, id, "print(x)", "1")
}

func TestARequestIsCheckedBeforeItWaits(t *testing.T) {
	m := manager(t, session.Config{MaxTimeout: time.Minute}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "s")
	for _, c := range []struct {
		name string
		id   session.ID
		req  session.Request
		want fault.Kind
	}{
		{"code of more than a mebibyte", id, session.Request{Code: strings.Repeat(" ", 1<<20+1)}, fault.Invalid},
		{"code that is not UTF-8", id, session.Request{Code: "\xff"}, fault.Invalid},
		{"a name over two lines", id, session.Request{Name: "a\nb"}, fault.Invalid},
		{"too many arguments", id, session.Request{Args: make([]string, 1<<20+1)}, fault.Invalid},
		{"an argument with a NUL", id, session.Request{Args: []string{"\x00"}}, fault.Invalid},
		{"a timeout beyond the maximum", id, session.Request{Timeout: time.Minute + 1}, fault.Invalid},
		{"a negative timeout", id, session.Request{Timeout: -1}, fault.Invalid},
		{"a negative limit", id, session.Request{Limits: sandbox.RunLimits{StdoutBytes: -1}}, fault.Invalid},
		{"an unknown language", id, session.Request{Language: "cobol"}, fault.Unsupported},
		{"another isolation", id, session.Request{Isolation: "linux"}, fault.Conflict},
		{"an unknown session", "unknown", session.Request{}, fault.NotFound},
		{"a malformed session id", "../s", session.Request{}, fault.Invalid},
		{"nothing wrong", id, session.Request{Code: strings.Repeat(" ", 1<<20), Timeout: time.Minute, Isolation: "fake"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.Execute(t.Context(), alice, c.id, c.req)
			wantKind(t, err, c.want)
		})
	}
}

func TestSettingsAreChecked(t *testing.T) {
	m := manager(t, session.Config{MaxStored: 2}, sandboxtest.FakeConfig{})
	for _, c := range []struct {
		name string
		id   session.ID
		set  session.Settings
		want fault.Kind
	}{
		{"an id with a slash", "a/b", session.Settings{}, fault.Invalid},
		{"an id that is too long", session.ID(strings.Repeat("x", 101)), session.Settings{}, fault.Invalid},
		{"an unknown isolation", "", session.Settings{Isolation: "docker"}, fault.Unsupported},
		{"an unknown language", "", session.Settings{Language: "cobol"}, fault.Unsupported},
		{"more memory than there is", "", session.Settings{MemoryBytes: 1 << 40}, fault.Invalid},
		{"a negative time to live", "", session.Settings{TTL: -1}, fault.Invalid},
		{"all that works", "one", session.Settings{Isolation: "fake", Language: "typescript", Name: "my session", MemoryBytes: 1 << 20, TTL: time.Hour}, ""},
		{"an id that is taken", "one", session.Settings{}, fault.Conflict},
		{"a second session", "two", session.Settings{}, ""},
		{"one more than allowed", "three", session.Settings{}, fault.Exhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			i, err := m.Create(t.Context(), alice, c.id, c.set)
			wantKind(t, err, c.want)
			if err == nil && (i.ID != c.id || !reflect.DeepEqual(i.Settings, c.set) || i.Isolation != "fake" || i.State != session.Idle || !i.ExpiresAt.After(i.CreatedAt)) {
				t.Errorf("%+v", i)
			}
		})
	}
	if _, err := m.Create(t.Context(), "bob", "", session.Settings{MemoryBytes: 1 << 40}); !strings.Contains(err.Error(), "between 0 and 256 MiB") {
		t.Errorf("too much memory: %v", err)
	}
	if _, err := m.Create(t.Context(), "bob", "one", session.Settings{}); err != nil {
		t.Errorf("another owner's sessions count: %v", err)
	}
}

func TestAnIsolationThatDoesNotWorkIsRefusedWithItsReason(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{Unavailable: "the moon is full"})
	_, err := m.Create(t.Context(), alice, "", session.Settings{Language: "python"})
	wantKind(t, err, fault.Unavailable)
	if !strings.Contains(err.Error(), "the moon is full") {
		t.Error(err)
	}
}

func TestMintedIDsCannotBeGuessed(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	seen := map[string]bool{}
	for range 20 {
		id := create(t, m, alice, "")
		if len(id) != 28 {
			t.Fatalf("the id: len(id): got %d, want 28: %v", len(id), id)
		}
		if !strings.HasPrefix(string(id), "s-") {
			t.Errorf("the id: id: got %q, want it to begin with %q", string(id), "s-")
		}
		expect.Equal(t, "the id: strings.ToLower(string(id))", strings.ToLower(string(id)), string(id))
		r := execute(t, m, id, "1")
		expect.Equal(t, "seen[string(id)]", seen[string(id)], false)
		expect.Equal(t, "seen[r.Execution]", seen[r.Execution], false)
		expect.Equal(t, "len(r.Execution)", len(r.Execution), 28)
		seen[string(id)], seen[r.Execution] = true, true
	}
}

func TestToOthersASessionDoesNotExist(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "private")
	ctx := t.Context()
	calls := map[string]func(session.Owner, session.ID) error{
		"Execute": func(o session.Owner, id session.ID) error {
			_, err := m.Execute(ctx, o, id, session.Request{})
			return err
		},
		"Info":        func(o session.Owner, id session.ID) error { _, err := m.Info(o, id); return err },
		"Details":     func(o session.Owner, id session.ID) error { _, err := m.Details(ctx, o, id); return err },
		"Files":       func(o session.Owner, id session.ID) error { _, _, err := m.Files(o, id); return err },
		"Cancel":      func(o session.Owner, id session.ID) error { _, err := m.Cancel(o, id, ""); return err },
		"Undo":        func(o session.Owner, id session.ID) error { _, err := m.Undo(ctx, o, id); return err },
		"Restore":     func(o session.Owner, id session.ID) error { _, err := m.Restore(ctx, o, id, "1"); return err },
		"Fork":        func(o session.Owner, id session.ID) error { _, err := m.Fork(ctx, o, id, "", 1); return err },
		"Export":      func(o session.Owner, id session.ID) error { return m.Export(ctx, o, id, io.Discard) },
		"Sleep":       func(o session.Owner, id session.ID) error { return m.Sleep(o, id) },
		"Checkpoints": func(o session.Owner, id session.ID) error { _, err := m.Checkpoints(o, id); return err },
		"Reset":       func(o session.Owner, id session.ID) error { _, err := m.Reset(ctx, o, id); return err },
		"Destroy":     func(o session.Owner, id session.ID) error { return m.Destroy(ctx, o, id) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for _, other := range []session.Owner{"bob", session.Local, ""} {
				err, never := fault.Of(call(other, id)), fault.Of(call(other, "neverwas"))
				if err == nil {
					t.Fatal("got no error, want one")
				}
				expect.Equal(t, "err.Kind", err.Kind, fault.NotFound)
				expect.Equal(t, `strings.ReplaceAll(err.Error(), string(id), "neverwas")`,
					strings.ReplaceAll(err.Error(), string(id), "neverwas"), never.Error())
				expect.Equal(t, "err.Hint", err.Hint, never.Hint)
			}
		})
	}
	if all, err := m.List("bob"); err != nil {
		t.Errorf("bob: got error %v, want none", err)
	} else if len(all) != 0 {
		t.Errorf("bob: got %v, want none", all)
	}
	prints(t, m, id, "print('here')", "here")
}

func TestOutputIsKeptUpToItsLimitAndPassedOn(t *testing.T) {
	m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: 10}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var out, errs bytes.Buffer
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "print('0123456789abc')\neprint('e')", Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "r.Stdout", r.Stdout, "0123456\n[… 4 bytes left out …]\nbc\n")
	expect.Equal(t, "r.Exit.StdoutTruncated", r.Exit.StdoutTruncated, true)
	expect.Equal(t, "out.String()", out.String(), "0123456789")
	expect.Equal(t, "errs.String()", errs.String(), "e\n")
	expect.Equal(t, "r.Exit.StderrTruncated", r.Exit.StderrTruncated, false)
	r, err = m.Execute(t.Context(), alice, id, session.Request{Code: "print('0123456789abc')", Limits: sandbox.RunLimits{StdoutBytes: 100}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stdout != "0123456789abc\n" {
		t.Errorf("r.Stdout: got %q, want %q", r.Stdout, "0123456789abc\n")
	}
	r, err = m.Execute(t.Context(), alice, id, session.Request{Code: "flood", Stdout: brokenWriter{}, Limits: sandbox.RunLimits{StdoutBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit.Cause != sandbox.Cancelled {
		t.Errorf("r.Exit.Cause: got %v, want %v (%+v)", r.Exit.Cause, sandbox.Cancelled, r.Exit.Error)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the reader is gone") }

func TestAnInterpreterThatIsLostIsReplacedAndTheModelTold(t *testing.T) {
	for _, c := range []struct {
		name, code string
		forced     sandbox.State
		kind       fault.Kind // of the call
		now, later string     // what this call's notice says, and the next one's
		after      string     // what x is then
	}{
		{"a program stopped by force, state restored", "x = 2\nspin", sandbox.Restored, "", "as they were before", "", "1"},
		{"a program stopped by force, state lost", "x = 2\nspin", sandbox.Fresh, "", "are gone", "", ""},
		{"a crash", "x = 2\ncrash", sandbox.Restored, "", "crashed", "", "1"},
		{"an instance that goes away", "vanish", 0, fault.Unavailable, "", "", "1"},
		{"a panic in the backend", "panic", 0, fault.Internal, "", "", "1"},
	} {
		dir := t.TempDir()
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{Forced: c.forced})
				id := create(t, m, alice, "")
				execute(t, m, id, "x = 1")
				r, err := m.Execute(t.Context(), alice, id, session.Request{Code: c.code, Timeout: 20 * time.Millisecond})
				wantKind(t, err, c.kind)
				if err != nil && !strings.Contains(fault.Of(err).Hint, "as they were before this call") {
					t.Errorf("the hint is %q", fault.Of(err).Hint)
				}
				if !strings.Contains(r.Notice, c.now) {
					t.Errorf("r.Notice: got %q, want %q in it", r.Notice, c.now)
				}
				if (c.now == "") != (r.Notice == "") {
					t.Errorf("the notice is %q", r.Notice)
				}
				r = execute(t, m, id, "print(x)")
				expect.Equal(t, "r.Stdout", strings.TrimSpace(r.Stdout), c.after)
				expect.Part(t, "r.Notice", r.Notice, c.later)
				if (c.later == "") != (r.Notice == "") {
					t.Errorf("x is %q, the notice %q", r.Stdout, r.Notice)
				}
				if r := execute(t, m, id, "1"); r.Notice != "" {
					t.Errorf("the notice comes again: %q", r.Notice)
				}
			})
		})
	}
}

func TestAStartThatFailsIsAFaultAndIsTriedAgain(t *testing.T) {
	broken := true
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{OnStart: func(sandbox.Spec) error {
		if broken {
			return errors.New("no memory on the host")
		}
		return nil
	}})
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1"})
	wantKind(t, err, fault.Unavailable)
	if strings.Contains(err.Error(), "host") {
		t.Errorf("the message tells the cause: %v", err)
	}
	broken = false
	prints(t, m, id, "print(1)", "1")
}

func TestDetailsTellWhatFilesAndInterpretersKnow(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "import math\nx = 42\nwrite('d.txt', 'hello')")
	d, err := m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Files) != 1 {
		t.Fatalf("len(d.Files): got %d, want 1: %v", len(d.Files), d.Files)
	}
	expect.Equal(t, "d.Files[0].Path", d.Files[0].Path, "d.txt")
	expect.Equal(t, "d.Files[0].Size", d.Files[0].Size, 5)
	expect.Equal(t, "d.DiskBytes", d.DiskBytes, 4096)
	if d.Memory == 0 {
		t.Error("d.Memory: got 0, want more")
	}
	if len(d.Variables) != 1 {
		t.Fatalf("len(d.Variables): got %d, want 1: %v", len(d.Variables), d.Variables)
	}
	expect.Equal(t, "d.Variables[0].Name", d.Variables[0].Name, "x")
	expect.Equal(t, "len(d.Imports)", len(d.Imports), 1)
	expect.Equal(t, "d.State", d.State, session.Live)
	expect.Equal(t, "d.Notice", d.Notice, "")
	started, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "sleep(3600)", Started: func(x string) { started <- x }})
		ended <- err
	}()
	<-started
	d, err = m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "d.Variables == nil", d.Variables == nil, true)
	expect.Equal(t, "d.State", d.State, session.Running)
	expect.Equal(t, "len(d.Files)", len(d.Files), 1)
	expect.Part(t, "d.Notice", d.Notice, "busy")
	if n, err := m.Cancel(alice, id, ""); err != nil {
		t.Error(err)
	} else if n != 1 {
		t.Errorf(`m.Cancel(alice, id, ""): got %v, want 1`, n)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRuntimesNameTheirIsolation(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{Name: "toy"})
	var got []string
	for _, r := range m.Runtimes(t.Context()) {
		got = append(got, r.Isolation+"/"+r.Name)
	}
	if s := strings.Join(got, " "); s != "toy/python toy/javascript" {
		t.Errorf("got %q", s)
	}
}

func TestOwnersAreThoseWhoHaveSessions(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	for _, o := range []session.Owner{"bob", alice, alice, session.Local} {
		create(t, m, o, "")
	}
	gone := create(t, m, "carol", "")
	if err := m.Destroy(t.Context(), "carol", gone); err != nil {
		t.Fatal(err)
	}
	if all, err := m.Owners(); err != nil {
		t.Errorf("owners: got error %v, want none", err)
	} else if !slices.Equal(all, []session.Owner{alice, "bob", session.Local}) {
		t.Errorf("owners: got %q, want %q", all, []session.Owner{alice, "bob", session.Local})
	}
}

func TestWhoHasTooManySessionsIsToldTheKey(t *testing.T) {
	for key, config := range map[string]session.Config{"sessions.max_sessions_per_client": {MaxPerOwner: 1}, "sessions.max_stored_per_client": {MaxStored: 1}} {
		m := manager(t, config, sandboxtest.FakeConfig{})
		defer inUse(t, m, alice, create(t, m, alice, ""))()
		_, err := m.Create(t.Context(), alice, "", session.Settings{})
		wantKind(t, err, fault.Exhausted)
		if err != nil && !strings.Contains(fault.Of(err).Hint, key) {
			t.Errorf("the hint is %q", fault.Of(err).Hint)
		}
	}
}

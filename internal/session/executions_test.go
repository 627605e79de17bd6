package session_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"paddock/internal/blob/blobtest"
	"paddock/internal/expect"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

func executions(t *testing.T, m *session.Manager, id session.ID) []session.Execution {
	t.Helper()
	all, err := m.Executions(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// only gives the one execution that there is.
func only(t *testing.T, all []session.Execution) session.Execution {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("got %d executions, want 1: %+v", len(all), all)
	}
	return all[0]
}

func TestWhatAnExecutionSaidIsKeptWithItsCheckpoint(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	code := "x = 1\nwrite('f', 'one')\nprint('said')\neprint('told')\ndisplay('text/html', '<b>1</b>')\nx + 1"
	r := execute(t, m, id, code)
	check := func(when string, m *session.Manager) {
		t.Helper()
		e := only(t, executions(t, m, id))
		expect.Equal(t, when+": ID", e.ID, r.Execution)
		expect.Equal(t, when+": Kept", e.Kept, true)
		expect.Equal(t, when+": Number", e.Number, int64(1))
		expect.Equal(t, when+": Code", e.Code, code)
		expect.Equal(t, when+": Language", e.Language, "python")
		expect.Equal(t, when+": Stdout", e.Stdout, "said\n")
		expect.Equal(t, when+": Stderr", e.Stderr, "told\n")
		expect.Equal(t, when+": Result", e.Result, "2")
		expect.Equal(t, when+": Success", e.Success, true)
		expect.Equal(t, when+": Usage.StdoutBytes", e.Usage.StdoutBytes, int64(5))
		expect.Equal(t, when+": Checkpoint", e.Checkpoint, "2")
		expect.Equal(t, when+": Files", fmt.Sprint(e.Files), "[{f added 3}]")
		expect.Equal(t, when+": Variables", fmt.Sprint(e.Variables), "[{x added}]")
		expect.Equal(t, when+": Displays", fmt.Sprint(e.Displays), "[{text/html 8 true}]")
		shown, err := m.Displays(alice, id, e)
		if err != nil || len(shown) != 1 || string(shown[0].Data) != "<b>1</b>" {
			t.Errorf("%s: displayed was %q, %v", when, shown, err)
		}
	}
	check("while it is open", m)
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	check("asleep", m)
	check("after a restart", reopened(t, m, dir, session.Config{}))
}

func TestAnErrorIsKept(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nraise ValueError('no')")
	e := only(t, executions(t, m, id))
	if e.Error == nil || e.Error.Type != "ValueError" || e.Error.Message != "no" || e.Error.Line != 2 {
		t.Errorf("the error is %+v", e.Error)
	}
	expect.Equal(t, "Success", e.Success, false)
	expect.Equal(t, "ExitCode", e.ExitCode, 1)
}

func TestAnExecutionThatChangesNothingIsKeptAndIsNoStepToUndo(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	execute(t, m, id, "x = 2")
	execute(t, m, id, "print(x)")
	execute(t, m, id, "print(x)")
	expect.Equal(t, "len(executions)", len(executions(t, m, id)), 4)
	undo(t, m, id)
	prints(t, m, id, "print(x)", "1")
	expect.Equal(t, "len(executions) after undo", len(executions(t, m, id)), 5)
}

func TestWhatWasUndoneIsStillTold(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nprint('one')")
	execute(t, m, id, "x = 2\nprint('two')")
	undo(t, m, id)
	all := executions(t, m, id)
	if len(all) != 2 || all[1].Stdout != "two\n" {
		t.Errorf("the executions are %+v", all)
	}
	if _, err := m.Restore(t.Context(), alice, id, all[1].Checkpoint); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "len(executions) after restore", len(executions(t, m, id)), 2)
}

func TestAForkAndAnImportBeginWithoutExecutions(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nprint('one')\ndisplay('image/png', 'a picture')")
	forks, err := m.Fork(t.Context(), alice, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	imported, _, err := m.Import(t.Context(), alice, "", &archive)
	if err != nil {
		t.Fatal(err)
	}
	for what, other := range map[string]session.ID{"a fork": forks[0].ID, "an import": imported.ID} {
		if all := executions(t, m, other); len(all) > 0 {
			t.Errorf("%s has executions: %+v", what, all)
		}
		prints(t, m, other, "print(x)", "1")
		expect.Equal(t, what, only(t, executions(t, m, other)).Stdout, "1\n")
	}
	only(t, executions(t, m, id))
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: 4 << 20, DisplayBytes: 64 << 20}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "s = '"+strings.Repeat("x", 600_000)+"'\nprint('first', s, 'last')\ndisplay('image/png', s+s+s+s)\ndisplay('text/plain', s+s+s+s)\ndisplay('text/html', 'small')")
	e := only(t, executions(t, m, id))
	if n := len(e.Stdout); n > 129<<10 || n < 100<<10 {
		t.Errorf("%d bytes of the output are kept", n)
	}
	if !strings.HasPrefix(e.Stdout, "first x") || !strings.HasSuffix(e.Stdout, "x last\n") || !strings.Contains(e.Stdout, "bytes left out") {
		t.Errorf("the output is %.20q ... %.20q", e.Stdout, e.Stdout[len(e.Stdout)-20:])
	}
	expect.Equal(t, "Usage.StdoutBytes", e.Usage.StdoutBytes, 600_000+int64(len("first  last\n")))
	expect.Equal(t, "Displays", fmt.Sprint(e.Displays), "[{image/png 2400000 true} {text/plain 2400000 false} {text/html 5 true}]")
	shown, err := m.Displays(alice, id, e)
	if err != nil || len(shown) != 3 || shown[1].Data != nil || string(shown[2].Data) != "small" {
		t.Errorf("%d displays, %v", len(shown), err)
	}
}

func TestOutputIsCollectedWithItsCheckpoint(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir, Checkpoints: 2}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 0")
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, m, id, "x = 1\nprint('"+strings.Repeat("long", 10_000)+"')\ndisplay('image/png', 'a picture')")
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	find := func() []string {
		settle(t, m)
		sum := sha256.Sum256([]byte("a picture"))
		digest := hex.EncodeToString(sum[:])
		found, err := filepath.Glob(filepath.Join(dir, "blobs", "*", digest[:2], "*"+digest[2:]))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(find()) != 1 {
		t.Errorf("what was displayed is at %v", find())
	}
	e := executions(t, m, id)
	shown, err := m.Displays(alice, id, e[len(e)-1])
	if err != nil || len(shown) != 1 || string(shown[0].Data) != "a picture" {
		t.Errorf("after a collection: %q, %v", shown, err)
	}
	for n := range 4 {
		execute(t, m, id, fmt.Sprint("x = ", n+2))
	}
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range executions(t, m, id) {
		if e.Stdout != "" {
			t.Errorf("it is still there: %.40q", e.Stdout)
		}
	}
	if found := find(); len(found) > 0 {
		t.Errorf("what was displayed is still there: %v", found)
	}
}

func TestNothingIsKeptWhereTheOperatorSaysSo(t *testing.T) {
	m := manager(t, session.Config{DropOutput: true}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 'hidden'\nprint(x)\ndisplay('text/plain', x)")
	execute(t, m, id, "print(x)") // it changes nothing
	e := only(t, executions(t, m, id))
	expect.Equal(t, "Kept", e.Kept, false)
	expect.Equal(t, "Code", e.Code, "x = 'hidden'")
	expect.Equal(t, "Stdout", e.Stdout, "")
	expect.Equal(t, "len(Displays)", len(e.Displays), 0)
}

func TestSecretsAreNotKept(t *testing.T) {
	var fails atomic.Bool
	k := &keeper{}
	c := k.config()
	c.Secrets.(*sessiontest.Secrets).OnClean = func(_ session.Owner, _ session.ID, text []byte) ([]byte, error) {
		if fails.Load() {
			return nil, errors.New("the keyring is locked")
		}
		return bytes.ReplaceAll(text, []byte("sesame"), []byte("(hidden)")), nil
	}
	m := manager(t, c, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 'sesame'\nprint(x)\neprint(x)\ndisplay('text/html', x)\nx")
	e := only(t, executions(t, m, id))
	expect.Equal(t, "Code", e.Code, "x = '(hidden)'\nprint(x)\neprint(x)\ndisplay('text/html', x)\nx")
	expect.Equal(t, "Stdout", e.Stdout, "(hidden)\n")
	expect.Equal(t, "Stderr", e.Stderr, "(hidden)\n")
	expect.Equal(t, "Result", e.Result, `'(hidden)'`)
	shown, err := m.Displays(alice, id, e)
	if err != nil || len(shown) != 1 || string(shown[0].Data) != "(hidden)" {
		t.Errorf("displayed was %q, %v", shown, err)
	}
	fails.Store(true)
	execute(t, m, id, "y = 'sesame'")
	all := executions(t, m, id)
	expect.Equal(t, "what may hold secrets", all[len(all)-1].Kept, false)
}

func TestAnExecutionThatWaitedIsOne(t *testing.T) {
	asking(t, nil, func(t *testing.T, m *session.Manager, p *people) {
		id := create(t, m, alice, "")
		r := execute(t, m, id, "print('before')\ndisplay('text/plain', 'one')\na = gather('approve', 1)\nprint('after')\ndisplay('text/plain', 'two')")
		e := only(t, executions(t, m, id))
		expect.Equal(t, "Cause", e.Cause, "waiting")
		expect.Equal(t, "Stdout", e.Stdout, "before\n")
		p.decide(1, "1")
		if _, err := m.Execute(t.Context(), alice, id, session.Request{Continue: r.Execution}); err != nil {
			t.Fatal(err)
		}
		e = only(t, executions(t, m, id))
		expect.Equal(t, "Stdout", e.Stdout, "before\nafter\n")
		expect.Equal(t, "len(Displays)", len(e.Displays), 2)
		shown, err := m.Displays(alice, id, e)
		if err != nil || len(shown) != 2 || string(shown[0].Data)+string(shown[1].Data) != "onetwo" {
			t.Errorf("displayed was %q, %v", shown, err)
		}
	})
}

func TestKeepingOutputWaitsForTheDiskNoOftener(t *testing.T) {
	syncs := func(drop bool) (n int) {
		root := t.TempDir()
		disk, err := blobtest.New(root)
		if err != nil {
			t.Fatal(err)
		}
		m := manager(t, session.Config{Dir: filepath.Join(root, "state"), Files: disk, DropOutput: drop}, sandboxtest.FakeConfig{})
		id := create(t, m, alice, "")
		execute(t, m, id, "x = 0")
		var count atomic.Int64
		disk.SetFault(func(op blobtest.Op) error {
			if strings.Contains(op.Kind, "sync") {
				count.Add(1)
			}
			return nil
		})
		for k := range 5 {
			execute(t, m, id, fmt.Sprintf("x = %d\nprint('%s')\ndisplay('text/html', '<b>%d</b>')", k+1, strings.Repeat("some text ", k*1000), k))
		}
		disk.SetFault(nil)
		return int(count.Load())
	}
	without, with := syncs(true), syncs(false)
	if without == 0 || with > without {
		t.Errorf("5 calls sync %d times, and %d where output is kept", without, with)
	}
}

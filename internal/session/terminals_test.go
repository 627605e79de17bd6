package session_test

import (
	"io"
	"runtime"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// terminal opens one, and gives it with somebody who is attached.
func terminal(t *testing.T, m *session.Manager, id session.ID) (sandbox.Terminal, sandbox.TerminalStream) {
	t.Helper()
	one, err := m.OpenTerminal(t.Context(), alice, id, sandbox.TerminalSpec{Command: []string{"bash"}})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := m.AttachTerminal(t.Context(), alice, id, one.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return one, stream
}

// echoes types a text, and checks that it is printed.
func echoes(t *testing.T, stream sandbox.TerminalStream, text string) {
	t.Helper()
	if _, err := io.WriteString(stream, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != text {
		t.Fatalf("it prints %q, %v", got, err)
	}
}

func TestATerminalOfASession(t *testing.T) {
	m, _ := machines(t, session.Config{})
	id := create(t, m, alice, "")
	if all, err := m.Terminals(t.Context(), alice, id); err != nil || len(all) != 0 {
		t.Errorf("at first there are %+v, %v", all, err)
	}
	_, err := m.AttachTerminal(t.Context(), alice, id, 1, 0)
	wantKind(t, err, fault.NotFound)
	one, stream := terminal(t, m, id)
	echoes(t, stream, "hello")
	wantKind(t, m.Sleep(alice, id), fault.Conflict) // somebody is attached
	if err := m.ResizeTerminal(t.Context(), alice, id, one.ID, sandbox.TerminalSize{Rows: 1, Cols: 2}); err != nil {
		t.Error(err)
	}
	if all, err := m.Terminals(t.Context(), alice, id); err != nil || len(all) != 1 || all[0].Attached != 1 || all[0].Size.Cols != 2 {
		t.Errorf("there are %+v, %v", all, err)
	}
	if _, err := io.WriteString(stream, "\nexit 3\n"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(stream); err != nil || string(rest) != "\nexit 3\n" {
		t.Errorf("the end is %q, %v", rest, err)
	}
	if all, err := m.Terminals(t.Context(), alice, id); err != nil || len(all) != 1 || !all[0].Ended || all[0].ExitCode != 3 {
		t.Errorf("then there are %+v, %v", all, err)
	}
	for range 2 {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		func() error { _, err := m.OpenTerminal(t.Context(), bob, id, sandbox.TerminalSpec{}); return err }(),
		func() error { _, err := m.Terminals(t.Context(), bob, id); return err }(),
		m.ResizeTerminal(t.Context(), bob, id, one.ID, sandbox.TerminalSize{}),
		func() error { _, err := m.AttachTerminal(t.Context(), bob, id, one.ID, 0); return err }(),
	} {
		wantKind(t, err, fault.NotFound)
	}
}

func TestASessionWithoutAMachineHasNoTerminals(t *testing.T) {
	m := sessiontest.Open(t, session.Config{}, sandboxtest.NewFake(sandboxtest.FakeConfig{}))
	id := create(t, m, alice, "")
	_, err := m.OpenTerminal(t.Context(), alice, id, sandbox.TerminalSpec{Command: []string{"bash"}})
	wantKind(t, err, fault.Unsupported)
}

func TestATerminalInASessionOfAnotherProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are machines on Linux alone")
	}
	dir := t.TempDir()
	m, _ := machines(t, session.Config{Dir: dir})
	other, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	_, err := other.OpenTerminal(t.Context(), alice, id, sandbox.TerminalSpec{Command: []string{"bash"}})
	wantKind(t, err, fault.Conflict) // it has no machine yet, and is not asked
	command(t, m, id, "echo", "boots")
	one, stream := terminal(t, other, id)
	echoes(t, stream, "from elsewhere\n")
	if all, err := m.Terminals(t.Context(), alice, id); err != nil || len(all) != 1 || all[0].ID != one.ID || all[0].Attached != 1 {
		t.Errorf("there are %+v, %v", all, err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	waitFor(t, func() bool {
		all, _ := m.Terminals(t.Context(), alice, id)
		return len(all) == 1 && all[0].Attached == 0
	})
	again, err := other.AttachTerminal(t.Context(), alice, id, one.ID, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.From() != 5 {
		t.Errorf("it begins at %d", again.From())
	}
	if err := other.ResizeTerminal(t.Context(), alice, id, one.ID, sandbox.TerminalSize{Rows: 3, Cols: 4}); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(again, "exit 4\n"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(again); err != nil || string(rest) != "elsewhere\nexit 4\n" {
		t.Errorf("the end is %q, %v", rest, err)
	}
	if all, err := other.Terminals(t.Context(), alice, id); err != nil || len(all) != 1 || all[0].ExitCode != 4 || all[0].Size.Rows != 3 {
		t.Errorf("then there are %+v, %v", all, err)
	}
	_, err = other.AttachTerminal(t.Context(), bob, id, one.ID, 0)
	wantKind(t, err, fault.NotFound)
}

// What only looks is not a step that undo would take back.
func TestALookIsNotAStep(t *testing.T) {
	m := sessiontest.Open(t, session.Config{}, sandboxtest.NewFake(sandboxtest.FakeConfig{}))
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	execute(t, m, id, "x = 2")
	before, err := m.Checkpoints(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.Execute(t.Context(), alice, id, session.Request{Code: "x", Look: true})
	if err != nil || res.Exit.Result != "2" {
		t.Fatalf("it sees %q, %v", res.Exit.Result, err)
	}
	if after, err := m.Checkpoints(alice, id); err != nil || len(after) != len(before) {
		t.Errorf("there are %d checkpoints and not %d, %v", len(after), len(before), err)
	}
	if i, err := m.Info(alice, id); err != nil || i.Executions != 2 {
		t.Errorf("%d runs are counted, %v", i.Executions, err)
	}
	if _, err := m.Undo(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if res := execute(t, m, id, "x"); res.Exit.Result != "1" {
		t.Errorf("undo leads to %q", res.Exit.Result)
	}
}

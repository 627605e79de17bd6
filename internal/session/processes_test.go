package session_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/session"
)

func TestProcessesAreListedReadAndStopped(t *testing.T) {
	m, _ := machines(t, session.Config{})
	id := create(t, m, alice, "")
	command(t, m, id, "spawn", "one")
	execute(t, m, id, "spawn two")
	list, err := m.Processes(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("the processes: got error %v, want none", err)
	}
	if len(list) != 2 {
		t.Fatalf("the processes: len(list): got %d, want 2: %v", len(list), list)
	}
	expect.Equal(t, "the processes: list[0].Command", list[0].Command, "one")
	expect.Equal(t, "the processes: list[0].Runtime", list[0].Runtime, "command")
	expect.Equal(t, "the processes: list[1].Runtime", list[1].Runtime, "python")
	if t.Failed() {
		t.FailNow()
	}
	printed, err := m.Printed(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("they: got error %v, want none", err)
	}
	if len(printed) != 2 {
		t.Fatalf("they: len(printed): got %d, want 2: %v", len(printed), printed)
	}
	if string(printed[0].Data) != "one has begun\n" {
		t.Errorf("they: printed[0].Data: got %q, want %q", string(printed[0].Data), "one has begun\n")
	}
	d, err := m.Details(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("the details: got error %v, want none", err)
	}
	expect.Equal(t, "the details: len(d.Processes)", len(d.Processes), 2)
	expect.Part(t, "the details: d.Printed", d.Printed, "two has begun")
	for range 2 {
		err = m.Signal(t.Context(), alice, id, list[1].PID, "TERM")
		if list, _ := m.Processes(t.Context(), alice, id); len(list) != 1 {
			t.Errorf("the processes are %+v", list)
		}
	}
	wantKind(t, err, fault.NotFound)
	_, err = m.Processes(t.Context(), "bob", id)
	wantKind(t, err, fault.NotFound)
	wantKind(t, m.Signal(t.Context(), "bob", id, list[0].PID, "KILL"), fault.NotFound)
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if list, err := m.Processes(t.Context(), alice, id); err != nil {
		t.Errorf("asleep its processes: got error %v, want none", err)
	} else if len(list) != 0 {
		t.Errorf("asleep its processes: got %v, want none", list)
	}
	if i, _ := m.Info(alice, id); i.State != session.Asleep {
		t.Error("asking woke it")
	}
}

func TestAnotherProcessSeesAndStopsWhatWorksInTheBackground(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are machines on Linux alone")
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	m, _ := machines(t, session.Config{Dir: dir})
	other, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	if list, err := other.Processes(t.Context(), alice, id); err != nil {
		t.Errorf("without a machine: got error %v, want none", err)
	} else if len(list) != 0 {
		t.Errorf("without a machine: got %v, want none", list)
	}
	command(t, m, id, "spawn", "one")
	list, err := other.Processes(t.Context(), alice, id)
	if err != nil {
		t.Fatalf("the processes: got error %v, want none", err)
	}
	if len(list) != 1 {
		t.Fatalf("the processes: len(list): got %d, want 1: %v", len(list), list)
	}
	if list[0].Command != "one" {
		t.Fatalf("the processes: list[0].Command: got %q, want %q", list[0].Command, "one")
	}
	if printed, err := other.Printed(t.Context(), alice, id); err != nil {
		t.Error(err)
	} else if len(printed) != 1 {
		t.Errorf("len(printed): got %d, want 1: %v", len(printed), printed)
	} else if string(printed[0].Data) != "one has begun\n" {
		t.Errorf("printed[0].Data: got %q, want %q", string(printed[0].Data), "one has begun\n")
	}
	if err := other.Signal(t.Context(), alice, id, list[0].PID, "TERM"); err != nil {
		t.Error(err)
	}
	wantKind(t, other.Signal(t.Context(), alice, id, list[0].PID, "TERM"), fault.NotFound)
	_, err = other.Processes(t.Context(), "bob", id)
	wantKind(t, err, fault.NotFound)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "desks")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

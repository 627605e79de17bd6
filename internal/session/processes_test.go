package session_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/session"
)

func TestProcessesAreListedReadAndStopped(t *testing.T) {
	m, _ := machines(t, session.Config{})
	id := create(t, m, alice, "")
	command(t, m, id, "spawn", "one")
	execute(t, m, id, "spawn two")
	list, err := m.Processes(t.Context(), alice, id)
	if err != nil || len(list) != 2 || list[0].Command != "one" || list[0].Runtime != "command" || list[1].Runtime != "python" {
		t.Fatalf("the processes are %+v, %v", list, err)
	}
	printed, err := m.Printed(t.Context(), alice, id)
	if err != nil || len(printed) != 2 || string(printed[0].Data) != "one has begun\n" {
		t.Errorf("they printed %+v, %v", printed, err)
	}
	d, err := m.Details(t.Context(), alice, id)
	if err != nil || len(d.Processes) != 2 || !strings.Contains(d.Printed, "two has begun") {
		t.Errorf("the details are %+v, %v", d, err)
	}
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
	if list, err := m.Processes(t.Context(), alice, id); len(list) != 0 || err != nil {
		t.Errorf("asleep its processes are %+v, %v", list, err)
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
	if list, err := other.Processes(t.Context(), alice, id); len(list) != 0 || err != nil {
		t.Errorf("without a machine: %+v, %v", list, err)
	}
	command(t, m, id, "spawn", "one")
	list, err := other.Processes(t.Context(), alice, id)
	if err != nil || len(list) != 1 || list[0].Command != "one" {
		t.Fatalf("the processes are %+v, %v", list, err)
	}
	if printed, err := other.Printed(t.Context(), alice, id); err != nil || len(printed) != 1 || string(printed[0].Data) != "one has begun\n" {
		t.Errorf("it printed %+v, %v", printed, err)
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

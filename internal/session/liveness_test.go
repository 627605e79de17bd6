package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestResetClearsFilesAndVariablesAndKeepsTheSession(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('a', '')\nwrite('b', '')\nwrite('/tmp/c', '')")
	n, err := m.Reset(t.Context(), alice, id)
	if err != nil {
		t.Errorf("resetting: got error %v, want none", err)
	}
	if n != 2 {
		t.Errorf("files that were deleted: got %d, want 2", n)
	}
	wantFresh(t, execute(t, m, id, "print(x)"))
	if r := execute(t, m, id, "read('/tmp/c')"); r.Exit.Error == nil {
		t.Error("the temporary file is still there")
	}
	if i, err := m.Info(alice, id); err != nil {
		t.Errorf("looking at the session: got error %v, want none", err)
	} else if i.Executions != 3 {
		t.Errorf("executions: got %d, want 3", i.Executions)
	}
}

// wantFresh checks that a program did not find what it looked for, and that no notice says
// that it is gone.
func wantFresh(t *testing.T, r session.Result) {
	t.Helper()
	if r.Exit.Error == nil {
		t.Errorf("the program's error: got none, want one; it printed %q", r.Stdout)
	}
	if r.Notice != "" {
		t.Errorf("notice: got %q, want none", r.Notice)
	}
}

func TestDestroyRemovesEverything(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "gone")
	execute(t, m, id, "write('a', 'secret')")
	tree, done, err := m.Files(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "owners", "*", "*"))
	if err != nil {
		t.Fatalf("looking at what is left: %v", err)
	}
	if len(left) != 0 {
		t.Errorf("left: got %v, want nothing", left)
	}
	wantKind(t, m.Destroy(t.Context(), alice, id), fault.NotFound)
	_, err = m.Execute(t.Context(), alice, id, session.Request{})
	wantKind(t, err, fault.NotFound)
	_, err = tree.Stat("a")
	wantKind(t, err, fault.NotFound)
	wantFresh(t, execute(t, m, create(t, m, alice, "gone"), "read('a')")) // the next session of that name
}

func TestFoldersAreReadableByTheirOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders have no modes here")
	}
	dir := filepath.Join(t.TempDir(), "state")
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	create(t, m, session.Local, "s")
	for p, want := range map[string]os.FileMode{"": 0o700, "owners/local": 0o700, "owners/local/s": 0o700, "owners/local/s/workspace": 0o700, "owners/local/s/session.json": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Errorf("looking at %q: %v", p, err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %q: got %v, want %v", p, got, want)
		}
	}
}

func TestCloseEndsEverythingAndWorksTwice(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "1") // else it may not have its interpreter yet
	var ended []chan error
	started := make(chan string, 1)
	for k := range 3 {
		c := make(chan error, 1)
		ended = append(ended, c)
		go func() {
			_, err := m.Execute(context.Background(), alice, id, session.Request{Code: "spin", Started: func(x string) { started <- x }})
			c <- err
		}()
		if k == 0 {
			<-started
		}
	}
	for waiting := true; waiting; {
		i, err := m.Info(alice, id)
		waiting = err == nil && i.State != session.Queued
		runtime.Gosched()
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended[0]; err != nil {
		t.Errorf("the run ended with %v", err)
	}
	for _, c := range ended[1:] {
		if k := fault.KindOf(<-c); k != fault.Unavailable && k != fault.NotFound {
			t.Errorf("one that waited ended with %q", k)
		}
	}
	_, err := m.Create(t.Context(), alice, "", session.Settings{})
	wantKind(t, err, fault.Unavailable)
	_, err = m.Execute(t.Context(), alice, id, session.Request{})
	wantKind(t, err, fault.Unavailable)
	_, err = m.Info(alice, id)
	wantKind(t, err, fault.Unavailable)
}

func TestListTellsAllOfAnOwnersSessions(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	for k := range 3 {
		create(t, m, alice, session.ID(fmt.Sprint("s", k)))
	}
	create(t, m, "bob", "b")
	execute(t, m, "s1", "1")
	all, err := m.List(alice)
	if err != nil {
		t.Fatalf("listing: got error %v, want none", err)
	}
	if len(all) != 3 {
		t.Fatalf("sessions: got %d, want 3: %+v", len(all), all)
	}
	for k, state := range []session.State{session.Idle, session.Live, session.Idle} {
		got := all[k]
		if want := session.ID(fmt.Sprint("s", k)); got.ID != want {
			t.Errorf("id of session %d: got %q, want %q", k, got.ID, want)
		}
		if got.State != state {
			t.Errorf("state of %s: got %q, want %q", got.ID, got.State, state)
		}
		if got.Process != os.Getpid() {
			t.Errorf("process of %s: got %d, want %d", got.ID, got.Process, os.Getpid())
		}
		if got.Owner != alice {
			t.Errorf("owner of %s: got %q, want %q", got.ID, got.Owner, alice)
		}
	}
}

// tenant is a backend whose guests run as somebody else.
type tenant struct{ *sandboxtest.Fake }

func (tenant) FileOwner() (uid, gid int) { return 4321, 1234 }

func TestAGuestOfAnotherUserOwnsTheWorkspaceAndNothingElse(t *testing.T) {
	sandboxtest.Require(t, "root", runtime.GOOS != "windows" && os.Geteuid() == 0, "only root gives folders away")
	dir := t.TempDir()
	backend := tenant{sandboxtest.NewFake(sandboxtest.FakeConfig{})}
	defer backend.Close()
	m, err := session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{backend}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	create(t, m, session.Local, "s")
	for p, want := range map[string]string{
		"..": "drwx------ 0", ".": "drwxr-xr-x 0", "s": "drwxr-xr-x 0", "s/workspace": "drwx------ 4321", "s/tmp": "drwx------ 4321", "s/session.json": "-rw------- 0", "s/lock": "-rw------- 0",
	} {
		info, err := os.Stat(filepath.Join(dir, "owners", "local", p))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(info.Mode(), " ", userOf(info)); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
}

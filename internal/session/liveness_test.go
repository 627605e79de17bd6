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
	if n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	r := execute(t, m, id, "print(x)")
	if r.Exit.Error == nil || r.Notice != "" {
		t.Errorf("%+v", r)
	}
	if r := execute(t, m, id, "read('/tmp/c')"); r.Exit.Error == nil {
		t.Error("the temporary file is still there")
	}
	if i, err := m.Info(alice, id); err != nil || i.Executions != 3 {
		t.Errorf("%+v, %v", i, err)
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
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	wantKind(t, m.Destroy(t.Context(), alice, id), fault.NotFound)
	_, err = m.Execute(t.Context(), alice, id, session.Request{})
	wantKind(t, err, fault.NotFound)
	_, err = tree.Stat("a")
	wantKind(t, err, fault.NotFound)
	if r := execute(t, m, create(t, m, alice, "gone"), "read('a')"); r.Exit.Error == nil || r.Notice != "" {
		t.Errorf("the next session of that name is not fresh: %+v", r)
	}
}

func TestFoldersAreReadableByTheirOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders have no modes here")
	}
	dir := filepath.Join(t.TempDir(), "state")
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	create(t, m, session.Local, "s")
	for p, want := range map[string]os.FileMode{"": 0o700, "owners/local": 0o700, "owners/local/s": 0o700, "owners/local/s/workspace": 0o700, "owners/local/s/session.json": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, p)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", p, info, err)
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
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for k, want := range []session.State{session.Idle, session.Live, session.Idle} {
		if i := all[k]; i.ID != session.ID(fmt.Sprint("s", k)) || i.State != want || i.Process != os.Getpid() || i.Owner != alice {
			t.Errorf("%+v", i)
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

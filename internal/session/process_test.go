package session_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// otherEnv makes the test binary another process that has a session open in
// the folder it names, until it is killed.
const otherEnv = "PADDOCK_TEST_OTHER_PROCESS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(otherEnv); dir != "" {
		if err := other(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func other(dir string) error {
	m, err := session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{})}})
	if err != nil {
		return err
	}
	if _, err := m.Create(context.Background(), alice, "shared", session.Settings{Name: "of another process"}); err != nil {
		return err
	}
	_, err = m.Execute(context.Background(), alice, "shared", session.Request{Code: "x = 42\nwrite('f', 'hello')"})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed
	return err
}

func TestASessionIsOneProcesssAtATimeAndOutlivesIt(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), otherEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	// The other process answers a call before the index tells of it.
	all, err := m.List(alice)
	for end := time.Now().Add(time.Minute); err == nil && len(all) == 1 && all[0].Executions == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		all, err = m.List(alice)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("len(all): got %d, want 1: %v", len(all), all)
	}
	expect.Equal(t, "all[0].Process", all[0].Process, cmd.Process.Pid)
	expect.Equal(t, "all[0].Executions", all[0].Executions, 1)
	expect.Equal(t, "all[0].Settings.Name", all[0].Settings.Name, "of another process")
	if t.Failed() {
		t.FailNow()
	}
	_, err = m.Execute(t.Context(), alice, "shared", session.Request{Code: "1"})
	wantKind(t, err, fault.Conflict)
	if !strings.Contains(err.Error(), fmt.Sprint("pid ", cmd.Process.Pid)) {
		t.Errorf("%v does not name the process", err)
	}
	_, err = m.Cancel(alice, "shared", "")
	wantKind(t, err, fault.Conflict)
	wantKind(t, m.Destroy(t.Context(), alice, "shared"), fault.Conflict)
	_, err = m.Create(t.Context(), alice, "shared", session.Settings{})
	wantKind(t, err, fault.Conflict)

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if i, err := m.Info(alice, "shared"); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "i.Process", i.Process, 0)
		expect.Equal(t, "i.State", i.State, session.Asleep)
	}
	if r := prints(t, m, "shared", "print(read('f'))", "hello"); r.Notice != "" {
		t.Errorf("nothing is lost, but: %q", r.Notice)
	}
	prints(t, m, "shared", "print(x)", "42")
	r, err := m.Execute(t.Context(), alice, "shared", session.Request{Code: "1", Language: "javascript"})
	if err != nil {
		t.Fatalf("a language that was not used: got error %v, want none", err)
	}
	if r.Notice != "" {
		t.Errorf("a language that was not used: r.Notice: got %q, want none", r.Notice)
	}
	if i, err := m.Info(alice, "shared"); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "i.Executions", i.Executions, 4)
		expect.Equal(t, "i.Process", i.Process, os.Getpid())
	}
}

func TestClosingLetsTheNextManagerGoOn(t *testing.T) {
	dir := t.TempDir()
	first := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	second := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, first, alice, "")
	_, _, err := second.Files(alice, id)
	wantKind(t, err, fault.Conflict)
	first.Close()
	if r := execute(t, second, id, "1"); r.Notice != "" {
		t.Errorf("nothing ran before, but: %q", r.Notice)
	}
	_, err = second.Create(t.Context(), alice, id, session.Settings{})
	wantKind(t, err, fault.Conflict)
}

func TestARecordThatIsNotUnderstoodIsNotTouched(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	for id, c := range map[session.ID]struct {
		text string
		want fault.Kind
	}{
		"broken": {"{", fault.Internal}, "newer": {`{"version":2,"session_id":"newer","owner":"local"}`, fault.Unsupported},
		"stranger": {`{"version":1,"session_id":"stranger","owner":"mallory"}`, fault.NotFound},
	} {
		t.Run(string(id), func(t *testing.T) {
			folder := filepath.Join(dir, "owners", "local", string(id))
			path := filepath.Join(folder, "session.json")
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := m.Execute(t.Context(), session.Local, id, session.Request{})
			wantKind(t, err, c.want)
			_, err = m.Create(t.Context(), session.Local, id, session.Settings{})
			wantKind(t, err, fault.Conflict)
			if got, err := os.ReadFile(path); err != nil {
				t.Error(err)
			} else if string(got) != c.text {
				t.Errorf("os.ReadFile(path): got %q, want %q", string(got), c.text)
			}
		})
	}
	if all, err := m.List(session.Local); err != nil {
		t.Error(err)
	} else if len(all) != 0 {
		t.Errorf("m.List(session.Local): got %v, want none", all)
	}
}

func TestTheRestOfARemovedSessionIsSwept(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, "owners", "local", "old"), filepath.Join(dir, "owners", "local", "young")
	for _, folder := range []string{old, young} {
		if err := os.MkdirAll(filepath.Join(folder, "workspace", "d"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	for n := 0; ; n++ { // the janitor may be at it, and has its lock
		if _, err := m.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(old); err != nil {
			break
		}
		if n == 10_000 {
			t.Fatal("it is still there")
		}
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("one that may be in the making was removed: %v", err)
	}
	if id := create(t, m, session.Local, "young"); id != "young" {
		t.Errorf("its name cannot be used: %q", id)
	}
}

func TestTheRecordIsWhatItSays(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	create(t, m, session.Local, "s")
	data, err := os.ReadFile(filepath.Join(dir, "owners", "local", "s", "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, `got["version"]`, got["version"], 1.0)
	expect.Equal(t, `got["session_id"]`, got["session_id"], "s")
	expect.Equal(t, `got["owner"]`, got["owner"], "local")
	expect.Equal(t, `got["isolation"]`, got["isolation"], "fake")
	expect.Equal(t, `got["process"]`, got["process"], any(float64(os.Getpid())))
}

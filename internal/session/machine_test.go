package session_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
	"paddock/internal/sessionfile/sessionfiletest"
)

// machines makes a Manager whose sessions have machines.
func machines(t *testing.T, config session.Config) (*session.Manager, *sandboxtest.FakeMachines) {
	t.Helper()
	b := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "machines"})
	return sessiontest.Open(t, config, b), b
}

// waitFor asks until the answer is yes.
func waitFor(t *testing.T, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !yes() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it does not become so")
		}
	}
}

func command(t *testing.T, m *session.Manager, id session.ID, words ...string) session.Result {
	t.Helper()
	r, err := m.Execute(t.Context(), alice, id, session.Request{Command: words})
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return r
}

// says checks that a notice speaks of all of these, and of nothing of what follows "".
func says(t *testing.T, notice string, words ...string) {
	t.Helper()
	want := true
	for _, w := range words {
		if w == "" {
			want = false
		} else if strings.Contains(notice, w) != want {
			t.Errorf("the notice is %q: whether it speaks of %q is %v", notice, w, !want)
		}
	}
}

func TestInterpretersAndCommandsShareTheSessionsMachine(t *testing.T) {
	var specs []sandbox.Spec
	b := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{OnStart: func(s sandbox.Spec) error { specs = append(specs, s); return nil }})
	m, err := session.New(session.Config{Dir: t.TempDir(), Backends: []sandbox.Backend{b}, MemoryBytes: 64 << 20, MachineMemoryBytes: 128 << 20, MaxMachineMemoryBytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer m.Close()
	volume := t.TempDir()
	i, err := m.Create(t.Context(), alice, "", session.Settings{MemoryBytes: 300 << 20, Machine: &session.Machine{
		Image: "some", CPUs: 2, Env: map[string]string{"A": "1", "TZ": "Asia/Tokyo"}, Volumes: []session.Volume{{Host: volume, Guest: "/data", ReadOnly: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, m, i.ID, "x = 1")
	if r := command(t, m, i.ID, "echo", "a", "b"); r.Stdout != "a b\n" {
		t.Errorf("the command: r.Stdout: got %q, want %q", r.Stdout, "a b\n")
	} else if r.Exit.Code != 0 {
		t.Errorf("the command: r.Exit.Code: got %v, want 0", r.Exit.Code)
	}
	if r := command(t, m, i.ID, "nothing"); r.Exit.Code != 127 {
		t.Errorf("a command: r.Exit.Code: got %v, want 127", r.Exit.Code)
	} else if r.Exit.Error == nil {
		t.Error("a command: r.Exit.Error: got nil, want one")
	}
	if len(specs) != 2 {
		t.Fatalf("the specs: len(specs): got %d, want 2: %v", len(specs), specs)
	}
	expect.Equal(t, "the specs: specs[0].Box", specs[0].Box, specs[1].Box)
	if specs[0].Box == "" {
		t.Error("the specs: specs[0].Box: got none, want one")
	}
	expect.Equal(t, "the specs: specs[1].Runtime", specs[1].Runtime, sandbox.CommandRuntime)
	if t.Failed() {
		t.FailNow()
	}
	s := specs[0]
	expect.Equal(t, "the spec: s.Image", s.Image, "some")
	expect.Equal(t, "the spec: s.CPUs", s.CPUs, 2)
	expect.Equal(t, `the spec: s.Env["A"]`, s.Env["A"], "1")
	expect.Equal(t, `the spec: s.Env["TZ"]`, s.Env["TZ"], "Asia/Tokyo")
	expect.Equal(t, "the spec: s.Limits.MemoryBytes", s.Limits.MemoryBytes, 300<<20)
	v := s.Mounts[len(s.Mounts)-1]
	expect.Equal(t, "the volume: v.Host", v.Host, volume)
	expect.Equal(t, "the volume: v.Guest", v.Guest, "/data")
	expect.Equal(t, "the volume: v.ReadOnly", v.ReadOnly, true)
	expect.Equal(t, "the volume: v.NoLinks", v.NoLinks, true)
	if _, err := m.Create(t.Context(), alice, "", session.Settings{MemoryBytes: 513 << 20}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("more memory than a machine may have: %v", err)
	}
	u, err := m.Usage(t.Context(), alice, i.ID)
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "u.Booted.IsZero()", u.Booted.IsZero(), false)
	expect.Equal(t, "u.Memory", u.Memory, 2<<20)
	if u.CPU <= 0 {
		t.Errorf("u.CPU: got %v, want more than 0", u.CPU)
	}
	if s := m.Stats(); s.Memory != 2<<20 {
		t.Errorf("%d bytes are counted", s.Memory)
	}
	_, err = m.Usage(t.Context(), "bob", i.ID)
	wantKind(t, err, fault.NotFound)
}

func TestAnIsolationWithoutMachinesRefusesWhatNeedsOne(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	_, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{Image: "some"}})
	wantKind(t, err, fault.Unsupported)
	id := create(t, m, alice, "")
	_, err = m.Execute(t.Context(), alice, id, session.Request{Command: []string{"ls"}})
	wantKind(t, err, fault.Unsupported)
	if list, err := m.Processes(t.Context(), alice, id); err != nil {
		t.Errorf("processes: got error %v, want none", err)
	} else if len(list) != 0 {
		t.Errorf("processes: got %v, want none", list)
	}
}

func TestAStoppedSessionRunsNothingUntilItIsBooted(t *testing.T) {
	m, b := machines(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('kept', 'text')")
	for range 2 {
		if err := m.Halt(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
		if i, err := m.Info(alice, id); err != nil {
			t.Error(err)
		} else {
			expect.Equal(t, "i.Halted", i.Halted, true)
			expect.Equal(t, "b.Live()", b.Live(), 0)
		}
	}
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1"})
	wantKind(t, err, fault.Conflict)
	_, err = m.Execute(t.Context(), alice, id, session.Request{Command: []string{"echo"}})
	wantKind(t, err, fault.Conflict)
	if u, err := m.Usage(t.Context(), alice, id); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "u.Booted.IsZero()", u.Booted.IsZero(), true)
		if u.Disk == 0 {
			t.Error("u.Disk: got 0, want more")
		}
	}
	for range 2 {
		if err := m.Boot(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
	}
	r := prints(t, m, id, "print(read('kept'))", "text")
	if says(t, r.Notice, "", "fresh"); execute(t, m, id, "x").Exit.Error == nil {
		t.Error("a variable is there again")
	}
	wantKind(t, m.Halt(t.Context(), "bob", id), fault.NotFound)
	wantKind(t, m.Boot(t.Context(), "bob", id), fault.NotFound)
}

func TestStoppingEndsWhatRunsAndWhatWaits(t *testing.T) {
	m, b := machines(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "write('kept', 'text')")
	started := make(chan string, 2)
	results, errs := make(chan session.Result, 1), make(chan error, 1)
	go func() {
		r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "loop", Started: func(x string) { started <- x }})
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	<-started
	go func() {
		_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "write('never', '')"})
		errs <- err
	}()
	waitFor(t, func() bool { return m.Stats().Queued == 1 })
	if err := m.Halt(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	r := <-results
	if says(t, r.Notice, "then stopped"); r.Exit.Cause != sandbox.Cancelled {
		t.Errorf("what ran ended with %v", r.Exit.Cause)
	}
	wantKind(t, <-errs, fault.Cancelled)
	if b.Live() != 0 {
		t.Error("something lives")
	}
	if d, err := m.Details(t.Context(), alice, id); err != nil {
		t.Errorf("its files: got error %v, want none", err)
	} else if len(d.Files) != 1 {
		t.Errorf("its files: len(d.Files): got %d, want 1: %v", len(d.Files), d.Files)
	}
}

// What has passed every check but its turn must not boot a stopped machine.
func TestWhatCameInWhileItWasBeingStoppedDoesNotBootIt(t *testing.T) {
	m, b := machines(t, session.Config{})
	id := create(t, m, alice, "")
	for range 20 {
		execute(t, m, id, "1")
		end := make(chan error, 2)
		go func() { _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "2"}); end <- err }()
		go func() { end <- m.Halt(t.Context(), alice, id) }()
		<-end
		<-end
		if i, err := m.Info(alice, id); err != nil {
			t.Fatalf("after it was stopped: got error %v, want none", err)
		} else if !i.Halted {
			t.Fatal("after it was stopped: i.Halted: got false, want true")
		} else if b.Live() != 0 {
			t.Fatalf("after it was stopped: b.Live(): got %v, want 0", b.Live())
		}
		if err := m.Boot(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAMachineIsChangedOnlyWhileNothingLives(t *testing.T) {
	var last sandbox.Spec
	b := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{OnStart: func(s sandbox.Spec) error { last = s; return nil }})
	plain := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "plain"}) // the default has no machines
	defer plain.Close()
	m := sessiontest.Open(t, session.Config{Backends: []sandbox.Backend{plain}}, b)
	i, err := m.Create(t.Context(), alice, "", session.Settings{Isolation: b.Name()})
	if err != nil {
		t.Fatal(err)
	}
	id := i.ID
	execute(t, m, id, "1")
	other := session.Settings{Machine: &session.Machine{Image: "other"}, MemoryBytes: 32 << 20}
	_, err = m.Configure(t.Context(), alice, id, other)
	wantKind(t, err, fault.Conflict)
	if err := m.Halt(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if i, err := m.Configure(t.Context(), alice, id, other); err != nil {
		t.Fatal(err)
	} else if i.Settings.Machine.Image != "other" {
		t.Fatalf("i.Settings.Machine.Image: got %q, want %q", i.Settings.Machine.Image, "other")
	}
	if err := m.Boot(t.Context(), alice, id); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "last.Image", last.Image, "other")
		expect.Equal(t, "last.Limits.MemoryBytes", last.Limits.MemoryBytes, 32<<20)
	}
	_, err = m.Configure(t.Context(), alice, id, session.Settings{MemoryBytes: 1 << 50})
	wantKind(t, err, fault.Invalid)
}

func TestStoppedAndRunningSessionsAreSoAfterARestart(t *testing.T) {
	dir := t.TempDir()
	open := func() (*session.Manager, *sandboxtest.FakeMachines, func()) {
		b := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "machines"})
		m, err := session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{b}})
		if err != nil {
			t.Fatal(err)
		}
		return m, b, func() { m.Close(); b.Close() }
	}
	m, _, end := open()
	stopped, runs := create(t, m, alice, "stopped"), create(t, m, alice, "runs")
	execute(t, m, stopped, "x = 1")
	execute(t, m, runs, "x = 1\nwrite('kept', 'text')")
	command(t, m, runs, "spawn", "server", "8000")
	if err := m.Halt(t.Context(), alice, stopped); err != nil {
		t.Fatal(err)
	}
	end()
	m, b, end := open()
	defer end()
	if i, err := m.Info(alice, stopped); err != nil {
		t.Errorf("the stopped one: got error %v, want none", err)
	} else if !i.Halted {
		t.Error("the stopped one: i.Halted: got false, want true")
	}
	if i, err := m.Info(alice, runs); err != nil {
		t.Errorf("the other one: got error %v, want none", err)
	} else {
		expect.Equal(t, "the other one: i.Halted", i.Halted, false)
		expect.Equal(t, "the other one: i.State", i.State, session.Asleep)
		expect.Equal(t, "the other one: b.Live()", b.Live(), 0)
	}
	r := command(t, m, runs, "echo", "on")
	says(t, r.Notice, "server 8000", "were stopped", "", "fresh")
	r = prints(t, m, runs, "print(read('kept'))", "text")
	says(t, r.Notice, "fresh python interpreter", "its machine was stopped meanwhile", "keeps only files", "", "server 8000")
	says(t, prints(t, m, runs, "print(1)", "1").Notice, "", "fresh", "stopped")
}

func TestAfterACrashTheTruthIsToldAboutVariablesAndFiles(t *testing.T) {
	dir := t.TempDir()
	m, _ := machines(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('kept', 'text')")
	folders, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) != 1 {
		t.Fatalf("len(folders): got %d, want 1: %v", len(folders), folders)
	}
	// What the background left since the last call is in no answer.
	if err := os.WriteFile(filepath.Join(folders[0], "late"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, _ := machines(t, session.Config{Dir: withoutDesks(t, dir)})
	r := prints(t, next, id, "print(read('kept'))", "text")
	says(t, r.Notice, "fresh python interpreter", "its machine was stopped meanwhile", "files are as they were", "", "files and variables are as they were")
}

// withoutDesks is copyState without sockets, which cannot be copied.
func withoutDesks(t *testing.T, dir string) string {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "desks")); err != nil {
		t.Fatal(err)
	}
	return copyState(t, dir)
}

func TestGoingBackEndsTheMachineAndBringsFilesBack(t *testing.T) {
	m, b := machines(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('a', '1')")
	execute(t, m, id, "x = 2\nwrite('a', '2')")
	command(t, m, id, "spawn", "writer")
	for name, back := range map[string]func() (session.Restored, error){
		"undo":    func() (session.Restored, error) { return m.Undo(t.Context(), alice, id) },
		"restore": func() (session.Restored, error) { return m.Restore(t.Context(), alice, id, "1") },
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, m, id, "x = 3\nwrite('a', '3')")
			command(t, m, id, "spawn", "writer")
			restored, err := back()
			if err != nil {
				t.Fatal(err)
			}
			says(t, restored.Notice, "Variables are gone (python)", "writer")
			if b.Live() != 0 {
				t.Errorf("%d interpreters live", b.Live())
			}
			r := execute(t, m, id, "x")
			if says(t, r.Notice, "fresh python interpreter", "to go back to an earlier state, and checkpoint ", " has only files; one that is asked for"); r.Exit.Error == nil {
				t.Error("a variable is there")
			}
		})
	}
}

func TestAForkHasFilesButNoVariablesNameOrPorts(t *testing.T) {
	m, _ := machines(t, session.Config{})
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{
		Sandbox: &session.SandboxName{Namespace: "n", Name: "s"}, Image: "some", Ports: []session.Port{{Host: freePort(t), Guest: 80}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, m, i.ID, "x = 1\nwrite('kept', 'text')")
	forks, err := m.Fork(t.Context(), alice, i.ID, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks {
		mc := f.Settings.Machine
		expect.Equal(t, "mc.Sandbox", mc.Sandbox, nil)
		expect.Equal(t, "mc.Ports == nil", mc.Ports == nil, true)
		expect.Equal(t, "mc.Image", mc.Image, "some")
		r := prints(t, m, f.ID, "print(read('kept'))", "text")
		says(t, r.Notice, "fresh python interpreter", "the session is a fork")
	}
	if err := m.Sleep(alice, i.ID); err != nil {
		t.Fatal(err)
	}
	later, err := m.Fork(t.Context(), alice, i.ID, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	says(t, execute(t, m, later[0].ID, "1").Notice, "the session is a fork")
}

func TestAMachineThatCannotBeIsRefusedAlsoInAnArchive(t *testing.T) {
	m, _ := machines(t, session.Config{})
	whole := sessionfiletest.Entries(t, exported(t, m, "x = 1", session.Settings{Machine: &session.Machine{Image: "some", CPUs: 2}}))
	for name, c := range map[string]session.Machine{
		"fewer processors than none": {CPUs: -1}, "more than there are": {CPUs: 1e300}, "a fraction of nothing": {CPUs: math.NaN()},
		"a name without end": {Image: strings.Repeat("x", 2000)}, "a name that is not text": {Image: "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &c})
			wantKind(t, err, fault.Invalid)
			if c.CPUs != c.CPUs || c.Image == "\xff" {
				return // which JSON does not have
			}
			forged := edited(t, whole, func(head map[string]any) { head["settings"].(map[string]any)["machine"] = c })
			_, _, err = m.Import(t.Context(), alice, "", bytes.NewReader(sessionfiletest.Archive(t, forged, nil)))
			wantKind(t, err, fault.Invalid)
		})
	}
	if all, err := m.List(alice); err != nil {
		t.Error(err)
	} else if len(all) != 1 {
		t.Errorf("len(all): got %d, want 1: %v", len(all), all)
	}
}

func TestAnArchiveHasFilesAndNothingOfItsHost(t *testing.T) {
	m, _ := machines(t, session.Config{})
	i, err := m.Create(t.Context(), alice, "", session.Settings{Machine: &session.Machine{
		Sandbox: &session.SandboxName{Namespace: "n", Name: "s"}, Image: "some", CPUs: 2, Env: map[string]string{"SECRET": "s3cret"},
		Volumes: []session.Volume{{Host: t.TempDir(), Guest: "/data"}}, Ports: []session.Port{{Host: freePort(t), Guest: 80}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, m, i.ID, "x = 1\nwrite('kept', 'text')")
	r, w := io.Pipe()
	go func() { w.CloseWithError(m.Export(t.Context(), alice, i.ID, w)) }()
	got, notice, err := m.Import(t.Context(), "bob", "", r)
	if err != nil {
		t.Fatal(err)
	}
	says(t, notice, "no variables")
	if mc := got.Settings.Machine; mc == nil {
		t.Error("the machine: got nil, want one")
	} else {
		expect.Equal(t, "the machine: mc.Image", mc.Image, "some")
		expect.Equal(t, "the machine: mc.CPUs", mc.CPUs, 2)
		expect.Equal(t, "the machine: mc.Env == nil", mc.Env == nil, true)
		expect.Equal(t, "the machine: mc.Volumes == nil", mc.Volumes == nil, true)
		expect.Equal(t, "the machine: mc.Ports == nil", mc.Ports == nil, true)
		expect.Equal(t, "the machine: mc.Sandbox", mc.Sandbox, nil)
	}
	res, err := m.Execute(t.Context(), "bob", got.ID, session.Request{Code: "print(read('kept'))", Language: "python"})
	if err != nil {
		t.Fatalf("the file: got error %v, want none", err)
	}
	if res.Stdout != "text\n" {
		t.Errorf("the file: res.Stdout: got %q, want %q", res.Stdout, "text\n")
	}
}

func TestASessionWithProcessesFallsAsleepOnlyWhenItsPlaceIsNeeded(t *testing.T) {
	m, b := machines(t, session.Config{SleepAfter: 150 * time.Millisecond, MaxPerOwner: 2})
	busy, idle := create(t, m, alice, "busy"), create(t, m, alice, "idle")
	command(t, m, busy, "spawn", "server")
	execute(t, m, idle, "1")
	waitFor(t, func() bool { i, err := m.Info(alice, idle); return err == nil && i.State == session.Asleep })
	if i, err := m.Info(alice, busy); err != nil {
		t.Fatal(err)
	} else if i.State != session.Live {
		t.Fatalf("i.State: got %v, want %v", i.State, session.Live)
	}
	create(t, m, alice, "a")
	create(t, m, alice, "b")
	waitFor(t, func() bool { i, err := m.Info(alice, busy); return err == nil && i.State == session.Asleep })
	if b.Live() != 0 {
		t.Errorf("%d interpreters live", b.Live())
	}
	says(t, command(t, m, busy, "echo").Notice, "server", "The session left memory")
}

func TestNoMachineRunsForEver(t *testing.T) {
	m, b := machines(t, session.Config{SleepAfter: -1, MaxLifetime: 300 * time.Millisecond})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('kept', 'text')")
	command(t, m, id, "spawn", "server")
	waitFor(t, func() bool {
		i, err := m.Info(alice, id)
		return err == nil && b.Live() == 0 && i.State == session.Idle && !i.Halted
	})
	r := prints(t, m, id, "print(read('kept'))", "text")
	says(t, r.Notice, "server", "fresh python interpreter", "300ms, the most that is allowed")
}

// Whoever calls without a pause leaves the janitor no time.
func TestAMachineThatIsNeverIdleIsReplacedBetweenTwoCalls(t *testing.T) {
	m, _ := machines(t, session.Config{MaxLifetime: 100 * time.Millisecond})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	waitFor(t, func() bool { return strings.Contains(execute(t, m, id, "1").Notice, "the most that is allowed") })
}

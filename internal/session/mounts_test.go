package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// told answers calls with whose they are, and remembers who was forgotten.
type told struct {
	mu    sync.Mutex // guards what follows
	runs  []session.Run
	gone  []session.ID
	fills int
	text  string // what the folder holds
}

func (o *told) config() session.Config {
	return session.Config{
		Tools: &sessiontest.Tools{OnCall: func(_ context.Context, run session.Run, c sandbox.Call) []byte {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.runs = append(o.runs, run)
			value := fmt.Sprintf("%s %d", run.Owner, c.Number)
			if strings.Contains(string(c.Body), "panic") {
				panic("it was asked for")
			}
			if strings.Contains(string(c.Body), "put") {
				path, err := run.Put("large.txt", []byte("large"))
				value = fmt.Sprint(path, err)
			}
			answer, _ := json.Marshal(map[string]string{"value": value})
			return answer
		}},
		Folders: []session.Folder{{Name: "servers", Refresh: func(_ context.Context, owner session.Owner, id session.ID, dir string) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.fills++
			if o.text == "" {
				return errors.New("there is nothing to be had")
			}
			return os.WriteFile(filepath.Join(dir, "index"), []byte(string(owner)+" "+o.text), 0o644)
		}}},
		Observers: []session.Observer{session.RemovedFunc(func(_ session.Owner, id session.ID) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.gone = append(o.gone, id)
		})},
	}
}

func (o *told) set(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = text
}

func TestAProgramsCallsAreAnsweredAsItsRuns(t *testing.T) {
	o := &told{}
	m := manager(t, o.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r := prints(t, m, id, "print(call('one', ''), call('two', ''))", "alice 1 alice 2")
	run := o.runs[1]
	expect.Equal(t, "the call: run.Owner", run.Owner, alice)
	expect.Equal(t, "the call: run.Session", run.Session, id)
	expect.Equal(t, "the call: run.Execution", run.Execution, r.Execution)
	if run.Execution == "" {
		t.Error("the call: run.Execution: got none, want one")
	}
	prints(t, m, id, "print(call('again', ''))", "alice 1")
	prints(t, m, id, "print(call('panic', ''))", "unavailable")
	prints(t, m, id, "print(call('one', ''))", "alice 1")
}

func TestWithoutAnybodyWhoAnswersCallsAProgramIsToldSo(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	prints(t, m, create(t, m, alice, ""), "print(call('one', ''))", "unavailable")
}

// What a run is given as a file is its own: undone with it, and named by its number.
func TestAFileThatACallGivesBelongsToTheRun(t *testing.T) {
	o := &told{}
	m := manager(t, o.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	r := prints(t, m, id, "print(call('put', ''))", ".paddock/2-large.txt<nil>")
	want := session.Change{Path: ".paddock/2-large.txt", Change: "added", Size: 5}
	if !slices.Contains(r.Changes, want) {
		t.Errorf("it changed %+v", r.Changes)
	}
	if _, err := m.Undo(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if d, err := m.Details(t.Context(), alice, id); err != nil {
		t.Error(err)
	} else if len(d.Files) != 0 {
		t.Errorf("d.Files: got %v, want none", d.Files)
	}
}

func TestProgramsFindAFolderAsItIsNow(t *testing.T) {
	o := &told{text: "first"}
	m := manager(t, o.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	prints(t, m, id, "print(read('/servers/index'))", "alice first")
	o.set("second")
	prints(t, m, id, "print(read('/servers/index'))", "alice second")
	o.set("")
	prints(t, m, id, "print(read('/servers/index'))", "alice second")
	if r := execute(t, m, id, "write('/servers/index', 'mine')"); r.Exit.Error == nil {
		t.Error("a program can write there")
	}
	if r := execute(t, m, id, "read('/servers/index')"); len(r.Changes) != 0 {
		t.Errorf("it changed %+v", r.Changes)
	}
	forks, err := m.Fork(t.Context(), alice, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	o.set("third")
	prints(t, m, forks[0].ID, "print(read('/servers/index'))", "alice third")
	if o.fills != 6 {
		t.Errorf("it was filled %d times", o.fills)
	}
}

func TestASessionThatEndsForGoodIsForgottenOnce(t *testing.T) {
	o := &told{text: "x"}
	config := o.config()
	config.Dir = t.TempDir()
	m := manager(t, config, sandboxtest.FakeConfig{})
	asleep, gone := create(t, m, alice, "asleep"), create(t, m, alice, "gone")
	execute(t, m, gone, "1")
	if err := m.Destroy(t.Context(), alice, gone); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.gone, []session.ID{gone}) {
		t.Errorf("forgotten are %v", o.gone)
	}
	again := manager(t, config, sandboxtest.FakeConfig{})
	if err := again.Destroy(t.Context(), alice, asleep); err != nil { // no process has it open
		t.Fatal(err)
	}
	if !slices.Equal(o.gone, []session.ID{gone, asleep}) {
		t.Errorf("forgotten are %v", o.gone)
	}
}

// bootedAhead gives a session of alice's with a machine that was booted before it, in
// which the index says "first".
func bootedAhead(t *testing.T, config session.Config, then func(t *testing.T, m *session.Manager, id session.ID)) {
	config.Pool = 4
	pooled(t, config, func(t *testing.T, m *session.Manager, _ *ahead) {
		pass(time.Second)
		id := create(t, m, alice, "")
		prints(t, m, id, "print(read('/servers/index'))", "alice first")
		if s := m.Stats(); s.PoolHits != 1 {
			t.Errorf("counted is %+v", s)
		}
		then(t, m, id)
	})
}

func TestAMachineThatIsBootedAlreadyHasTheFolders(t *testing.T) {
	o := &told{text: "first"}
	bootedAhead(t, o.config(), func(t *testing.T, m *session.Manager, id session.ID) {
		pass(time.Second)
		if _, err := m.Reset(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		}
		o.set("second")
		prints(t, m, id, "print(read('/servers/index'))", "alice second")
		if s := m.Stats(); s.PoolHits != 2 {
			t.Errorf("counted is %+v", s)
		}
	})
}

func TestAFolderIsNotOneOfTheSessionsOwn(t *testing.T) {
	fill := func(context.Context, session.Owner, session.ID, string) error { return nil }
	for _, folders := range [][]session.Folder{
		{{Name: "workspace", Refresh: fill}}, {{Name: "tmp", Refresh: fill}}, {{Name: "app", Refresh: fill}}, {{Name: "", Refresh: fill}},
		{{Name: "../x", Refresh: fill}}, {{Name: "a", Refresh: fill}, {Name: "a", Refresh: fill}}, {{Name: "a"}},
	} {
		backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
		if _, err := session.New(session.Config{Dir: t.TempDir(), Backends: []sandbox.Backend{backend}, Folders: folders}); err == nil {
			t.Error("got no error, want one")
		} else if fault.KindOf(err) == fault.NotFound {
			t.Errorf("fault.KindOf(err): got %v, want another", fault.KindOf(err))
		}
		backend.Close()
	}
}

// everybodys are folders that sessions share, and remember for whom they were filled.
func (o *told) everybodys() session.Config {
	c := o.config()
	fill := c.Folders[0].Refresh
	c.Folders[0].Shared = true
	c.Folders[0].Refresh = func(ctx context.Context, owner session.Owner, id session.ID, dir string) error {
		o.mu.Lock()
		o.gone = append(o.gone, id)
		o.mu.Unlock()
		return fill(ctx, owner, id, dir)
	}
	c.Observers = nil
	return c
}

func TestAllSessionsOfAnOwnerAreShownOneFolder(t *testing.T) {
	o := &told{text: "first"}
	config := o.everybodys()
	config.Dir = t.TempDir()
	m := manager(t, config, sandboxtest.FakeConfig{})
	one, two := create(t, m, alice, ""), create(t, m, alice, "two")
	prints(t, m, one, "print(read('/servers/index'))", "alice first")
	if _, err := m.Create(t.Context(), "bob", "his", session.Settings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Execute(t.Context(), "bob", "his", session.Request{Code: "1", Language: "python"}); err != nil {
		t.Fatal(err)
	}
	o.set("") // what is there stays
	prints(t, m, two, "print(read('/servers/index'))", "alice first")
	prints(t, m, one, "print(read('/servers/index'))", "alice first")
	forks, err := m.Fork(t.Context(), alice, one, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	o.set("second")
	prints(t, m, forks[0].ID, "print(read('/servers/index'))", "alice second")
	o.set("")
	prints(t, m, one, "print(read('/servers/index'))", "alice second")
	if r := execute(t, m, two, "write('/servers/index', 'mine')"); r.Exit.Error == nil {
		t.Error("a program can write there")
	}
	if slices.ContainsFunc(o.gone, func(id session.ID) bool { return id != "" }) {
		t.Errorf("it was filled for %q", o.gone)
	}
	own, err := filepath.Glob(filepath.Join(config.Dir, "owners", "*", "*", "servers"))
	if err != nil {
		t.Fatalf("sessions: got error %v, want none", err)
	}
	if len(own) != 0 {
		t.Errorf("sessions: own: got %v, want none", own)
	}
	all, err := filepath.Glob(filepath.Join(config.Dir, "shared", "*", "servers", "index"))
	if err != nil {
		t.Fatalf("owners: got error %v, want none", err)
	}
	if len(all) != 2 {
		t.Errorf("owners: len(all): got %d, want 2: %v", len(all), all)
	}
	if err := m.Destroy(t.Context(), alice, two); err != nil {
		t.Fatal(err)
	}
	prints(t, m, one, "print(read('/servers/index'))", "alice second")
}

// A session of an earlier paddock loses the folder that it has of its own.
func TestASessionThatHadAFolderOfItsOwnIsShownItsOwners(t *testing.T) {
	o := &told{text: "first"}
	config := o.config()
	config.Dir = t.TempDir()
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	prints(t, m, id, "print(read('/servers/index'))", "alice first")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	o.set("second")
	later := o.everybodys()
	later.Dir = config.Dir
	prints(t, manager(t, later, sandboxtest.FakeConfig{}), id, "print(read('/servers/index'))", "alice second")
	if own, err := filepath.Glob(filepath.Join(config.Dir, "owners", "*", "*", "servers")); err != nil {
		t.Errorf("sessions: got error %v, want none", err)
	} else if len(own) != 0 {
		t.Errorf("sessions: got %v, want none", own)
	}
}

// Machines have their folders before anybody knows whose they are.
func TestAMachineHasFoldersOfItsOwn(t *testing.T) {
	o := &told{text: "first"}
	bootedAhead(t, o.everybodys(), func(t *testing.T, m *session.Manager, id session.ID) {
		if !slices.Equal(o.gone, []session.ID{id}) {
			t.Errorf("it was filled for %q", o.gone)
		}
	})
}

func TestSharedFoldersCanBeReadWhateverTheUmask(t *testing.T) {
	o := &told{text: "first"}
	config := o.everybodys()
	config.Dir = t.TempDir()
	m := manager(t, config, sandboxtest.FakeConfig{})
	create(t, m, alice, "")
	all, err := filepath.Glob(filepath.Join(config.Dir, "shared", "*", "servers"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("len(all): got %d, want 1: %v", len(all), all)
	}
	if info, err := os.Stat(all[0]); err != nil {
		t.Error(err)
	} else if info.Mode().Perm()&0o555 != 0o555 {
		t.Errorf("info.Mode().Perm()&0o555: got %#o, want 0o555", info.Mode().Perm()&0o555)
	}
}

// What is forgotten is not another session's that was made with the same name meanwhile.
func TestASessionIsForgottenBeforeItsNameIsFree(t *testing.T) {
	dir, asked := t.TempDir(), 0
	other := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	m := manager(t, session.Config{Dir: dir, Observers: []session.Observer{session.RemovedFunc(func(owner session.Owner, id session.ID) {
		asked++
		if _, err := other.Create(t.Context(), owner, id, session.Settings{}); err == nil {
			t.Error("its name was free")
		}
	})}}, sandboxtest.FakeConfig{})
	create(t, m, alice, "name")
	if err := m.Destroy(t.Context(), alice, "name"); err != nil {
		t.Error(err)
	} else if asked != 1 {
		t.Errorf("asked: got %v, want 1", asked)
	}
	create(t, other, alice, "name")
}

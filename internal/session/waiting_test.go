package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// people decide about calls of the tool "approve", by their numbers, and do what
// other tools do.
type people struct {
	mu       sync.Mutex // guards what follows
	decided  map[int]string
	changed  chan struct{}  // closed when something was decided
	asked    map[string]int // how often, by execution and number
	left     int            // calls that ended as their run was suspended
	ended    []error        // why others did
	givenUp  []string
	effects  int // calls of the tool "effect" that were made
	whenUsed func()
	// whenAsked is called once when somebody is asked whose answer is known.
	whenAsked func()
}

func newPeople() *people {
	return &people{decided: map[int]string{}, changed: make(chan struct{}), asked: map[string]int{}}
}

// asking runs a test in which time passes only while everyone waits.
func asking(t *testing.T, change func(*session.Config), test func(t *testing.T, m *session.Manager, p *people)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := newPeople()
		config := p.config()
		config.Dir = dir
		if change != nil {
			change(&config)
		}
		test(t, manager(t, config, sandboxtest.FakeConfig{}), p)
	})
}

func (p *people) config() session.Config {
	return session.Config{WaitInPlace: 1, Tools: &sessiontest.Tools{OnCall: p.call, OnAbandoned: func(_ session.Owner, _ session.ID, execution string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.givenUp = append(p.givenUp, execution)
	}}}
}

// decide says what a call gives.
func (p *people) decide(number int, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decided[number] = value
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *people) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	var said struct{ Tool string }
	if err := json.Unmarshal(c.Body, &said); err != nil {
		return nil
	}
	value := "0"
	switch said.Tool {
	case "approve":
		var ok bool
		if value, ok = p.wait(ctx, run, c.Number); !ok {
			return nil
		}
	case "effect":
		p.mu.Lock()
		p.effects++
		do := p.whenUsed
		p.mu.Unlock()
		if do != nil {
			do()
		}
	}
	text, _ := json.Marshal(map[string]string{"value": value})
	return text
}

func (p *people) wait(ctx context.Context, run session.Run, number int) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[fmt.Sprint(run.Execution, "/", number)]++
	for {
		if value, ok := p.decided[number]; ok {
			if do := p.whenAsked; do != nil {
				p.whenAsked = nil
				do()
			}
			run.Suspend("")
			return value, true
		}
		changed := p.changed
		p.mu.Unlock()
		run.Suspend(fmt.Sprint("ap-", number))
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := context.Cause(ctx); err != nil {
			if err == session.ErrSuspended {
				p.left++
			} else {
				p.ended = append(p.ended, err)
			}
			return "", false
		}
	}
}

// onEffect has the tool "effect" do something; nil: nothing.
func (p *people) onEffect(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whenUsed = do
}

func (p *people) gaveUp() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.givenUp)
}

const asksTwo = "x = 1\nwrite('f', 'one')\nprint('before')\nmany = gather('approve', 2)\nprint('after', many)\nx = x + many\nwrite('f', 'two')"

// waiting runs a program that has to wait for the calls 1 to n.
func waiting(t *testing.T, m *session.Manager, id session.ID, code string, n int) session.Result {
	t.Helper()
	r := execute(t, m, id, code)
	var want []string
	for k := range n {
		want = append(want, fmt.Sprint("ap-", k+1))
	}
	expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.Waiting)
	expect.Equal(t, "r.Exit.State", r.Exit.State, sandbox.Kept)
	expect.Equal(t, "r.Exit.Error", r.Exit.Error, nil)
	if !slices.Equal(r.Waiting, want) {
		t.Errorf("r.Waiting: got %q, want %q", r.Waiting, want)
	}
	expect.Equal(t, "r.Notice", r.Notice, "")
	if t.Failed() {
		t.FailNow()
	}
	return r
}

func goOn(m *session.Manager, id session.ID, execution string) (session.Result, error) {
	return m.Execute(context.Background(), alice, id, session.Request{Continue: execution})
}

// ends goes on with asksTwo, and has it end as it should.
func ends(t *testing.T, m *session.Manager, id session.ID, execution string) session.Result {
	t.Helper()
	r, err := goOn(m, id, execution)
	if err != nil {
		t.Fatalf("going on: %v", err)
	}
	expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.Exited)
	expect.Equal(t, "r.Exit.Error", r.Exit.Error, nil)
	expect.Equal(t, "r.Stdout", r.Stdout, "before\nafter 30\n")
	expect.Equal(t, "r.Execution", r.Execution, execution)
	expect.Equal(t, "r.Waiting == nil", r.Waiting == nil, true)
	if t.Failed() {
		t.FailNow()
	}
	return r
}

func notWaiting(t *testing.T, m *session.Manager, id session.ID, execution string) {
	t.Helper()
	if _, err := goOn(m, id, execution); fault.KindOf(err) != fault.NotFound {
		t.Errorf("it goes on: %v", err)
	}
	if i, err := m.Info(alice, id); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "i.Waiting", i.Waiting, nil)
		if i.State == session.Waiting {
			t.Errorf("i.State: got %v, want another", i.State)
		}
	}
}

// wantListed checks what a session and the lists of runs that wait say of asksTwo, which waits.
func wantListed(t *testing.T, m *session.Manager, id session.ID, execution string) {
	t.Helper()
	i, err := m.Info(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	if i.State != session.Waiting {
		t.Fatalf("i.State: got %v, want %v", i.State, session.Waiting)
	}
	if i.Waiting == nil {
		t.Fatal("i.Waiting: got nil, want one")
	}
	expect.Equal(t, "i.Waiting.Execution", i.Waiting.Execution, execution)
	expect.Equal(t, "i.Waiting.Session", i.Waiting.Session, id)
	expect.Equal(t, "i.Waiting.Owner", i.Waiting.Owner, alice)
	expect.Equal(t, "i.Waiting.Language", i.Waiting.Language, "python")
	if !slices.Equal(i.Waiting.Reasons, []string{"ap-1", "ap-2"}) {
		t.Errorf("i.Waiting.Reasons: got %q, want %q", i.Waiting.Reasons, []string{"ap-1", "ap-2"})
	}
	expect.Equal(t, "i.Executions", i.Executions, 1)
	for _, owner := range []session.Owner{alice, ""} {
		if all, err := m.WaitingRuns(owner); err != nil {
			t.Errorf("%q: got error %v, want none", owner, err)
		} else if len(all) != 1 {
			t.Errorf("%q: len(all): got %d, want 1: %v", owner, len(all), all)
		} else if all[0].Execution != execution {
			t.Errorf("%q: all[0].Execution: got %v, want %v", owner, all[0].Execution, execution)
		}
	}
	if all, err := m.WaitingRuns("bob"); err != nil {
		t.Errorf("bob's: got error %v, want none", err)
	} else if len(all) != 0 {
		t.Errorf("bob's: got %v, want none", all)
	}
}

func TestARunThatWaitsForAPersonGoesOnWhenItIsToldTo(t *testing.T) {
	p := newPeople()
	m := manager(t, p.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var put string
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: asksTwo, Ended: func(r session.Result, f session.PutFunc) { put, _ = f("shown", []byte(r.Stdout)) }})
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.Waiting)
	expect.Equal(t, "r.Stdout", r.Stdout, "before\n")
	expect.Equal(t, "put", put, ".paddock/1-shown")
	expect.Equal(t, "len(r.Changes)", len(r.Changes), 2)
	if t.Failed() {
		t.FailNow()
	}
	wantListed(t, m, id, r.Execution)
	p.decide(1, "10")
	again, err := goOn(m, id, r.Execution)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Waiting, []string{"ap-2"}) {
		t.Fatalf("again.Waiting: got %q, want %q", again.Waiting, []string{"ap-2"})
	}
	if again.Earlier.Stdout != len("before\n") {
		t.Fatalf("again.Earlier.Stdout: got %v, want %v", again.Earlier.Stdout, len("before\n"))
	}
	p.decide(2, "20")
	done, err := m.Execute(t.Context(), alice, id, session.Request{Continue: r.Execution, Ended: func(r session.Result, f session.PutFunc) { put, _ = f("shown", []byte(r.Stdout)) }})
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "done.Stdout", done.Stdout, "before\nafter 30\n")
	expect.Equal(t, "done.Earlier.Stdout", done.Earlier.Stdout, len("before\n"))
	expect.Equal(t, "done.Execution", done.Execution, r.Execution)
	expect.Equal(t, "put", put, ".paddock/1-shown")
	if t.Failed() {
		t.FailNow()
	}
	want := map[string]int{r.Execution + "/1": 2, r.Execution + "/2": 3}
	if !maps.Equal(p.asked, want) {
		t.Errorf("p.asked: got %v, want %v", p.asked, want)
	}
	expect.Equal(t, "p.left", p.left, 3)
	expect.Equal(t, "len(p.ended)", len(p.ended), 0)
	expect.Equal(t, "len(p.givenUp)", len(p.givenUp), 0)
	notWaiting(t, m, id, r.Execution)
	prints(t, m, id, "print(x, read('f'))", "31 two")
	if i, err := m.Info(alice, id); err != nil {
		t.Error(err)
	} else if i.Executions != 2 {
		t.Errorf("i.Executions: got %v, want 2", i.Executions)
	}
}

func TestWhatAContinuationMayNotSay(t *testing.T) {
	p := newPeople()
	m := manager(t, p.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	notWaiting(t, m, id, "x-unknown")
	r := waiting(t, m, id, asksTwo, 2)
	for name, req := range map[string]session.Request{
		"code": {Code: "1"}, "a language": {Language: "python"}, "a name": {Name: "f"}, "arguments": {Args: []string{"a"}}, "input": {Stdin: strings.NewReader("")},
		"a command": {Command: []string{"ls"}}, "limits": {Limits: sandbox.RunLimits{Fuel: 1}},
	} {
		req.Continue = r.Execution
		if _, err := m.Execute(t.Context(), alice, id, req); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := m.Execute(t.Context(), "bob", id, session.Request{Continue: r.Execution})
	wantKind(t, err, fault.NotFound)
	other := create(t, m, alice, "")
	notWaiting(t, m, other, r.Execution)
	p.decide(1, "10")
	p.decide(2, "20")
	ends(t, m, id, r.Execution)
}

// Each half of the program keeps its limit, and both of them do not.
func TestALimitIsForAllThatARunDoesBeforeAndAfterItWaits(t *testing.T) {
	for name, c := range map[string]struct {
		half   string
		limits sandbox.RunLimits
		ended  func(before, after session.Result) bool
	}{
		"fuel": {strings.Repeat("x = 1\n", 10), sandbox.RunLimits{Fuel: 16}, func(before, after session.Result) bool {
			return after.Exit.Cause == sandbox.OutOfFuel && before.Exit.Usage.Fuel+after.Exit.Usage.Fuel == 16
		}},
		"output": {"print('12345678')\neprint('12345678')\n", sandbox.RunLimits{StdoutBytes: 10, StderrBytes: 11}, func(_, after session.Result) bool {
			return after.Exit.Cause == sandbox.Exited && after.Stdout == "1234567\n[… 8 bytes left out …]\n78\n" && after.Stderr == "12345678\n[… 7 bytes left out …]\n78\n" && after.Exit.StdoutTruncated && after.Exit.StderrTruncated
		}},
		"displays": {"display('text/plain', '" + strings.Repeat("a", 1500) + "')\n", sandbox.RunLimits{DisplayBytes: 2000}, func(before, after session.Result) bool {
			return len(before.Displays) == 1 && len(after.Displays) == 0 && after.Exit.Error != nil && strings.Contains(after.Exit.Error.Message, "over its limit")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeople()
			config := p.config()
			config.Limits = c.limits
			m := manager(t, config, sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			before := waiting(t, m, id, c.half+"many = gather('approve', 1)\n"+c.half, 1)
			p.decide(1, "1")
			after, err := goOn(m, id, before.Execution)
			if err != nil {
				t.Fatal(err)
			}
			if !c.ended(before, after) {
				t.Errorf("it %v with %q, %q, %+v, error %+v, after %+v",
					after.Exit.Cause, after.Stdout, after.Stderr, after.Exit.Usage, after.Exit.Error, before.Exit.Usage)
			}
		})
	}
}

// What happens while a run waits, and does not end it.
func TestARunThatWaitsOutlives(t *testing.T) {
	ok := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type place struct {
		m      *session.Manager
		id     session.ID
		dir    string
		config session.Config
		people *people
	}
	for name, between := range map[string]func(t *testing.T, p *place){
		"nothing":              func(*testing.T, *place) {},
		"its session's sleep":  func(t *testing.T, p *place) { ok(t, p.m.Sleep(alice, p.id)) },
		"the process's end":    func(t *testing.T, p *place) { p.m = reopened(t, p.m, p.dir, p.config) },
		"a file that is put":   func(t *testing.T, p *place) { putFile(t, p.m, p.id, "g", "new") },
		"code in another one":  func(t *testing.T, p *place) { elsewhere(t, p.m, p.id, "write('g', 'js')") },
		"a crash of that":      func(t *testing.T, p *place) { elsewhere(t, p.m, p.id, "write('f', 'js')\ncrash") },
		"a checkpoint":         func(t *testing.T, p *place) { _, err := p.m.Checkpoint(t.Context(), alice, p.id, "here"); ok(t, err) },
		"a look at it":         func(t *testing.T, p *place) { _, err := p.m.Details(t.Context(), alice, p.id); ok(t, err) },
		"an export of it":      func(t *testing.T, p *place) { ok(t, p.m.Export(t.Context(), alice, p.id, new(bytes.Buffer))) },
		"a fork of it":         func(t *testing.T, p *place) { _, err := p.m.Fork(t.Context(), alice, p.id, "", 2); ok(t, err) },
		"that nothing is left": func(t *testing.T, p *place) { _, err := p.m.Collect(t.Context()); ok(t, err) },
		"a cancel of another":  func(t *testing.T, p *place) { _, err := p.m.Cancel(alice, p.id, "x-other"); ok(t, err) },
		"its process's kill": func(t *testing.T, p *place) {
			p.config.Dir = copyRunning(t, p.dir)
			p.m = manager(t, p.config, sandboxtest.FakeConfig{})
		},
		"a kill while another runs": func(t *testing.T, p *place) {
			p.people.onEffect(func() { p.config.Dir = copyRunning(t, p.dir) })
			elsewhere(t, p.m, p.id, "write('f', 'cut short')\ncall('effect', '')")
			p.m = manager(t, p.config, sandboxtest.FakeConfig{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			people := newPeople()
			at := &place{config: people.config(), dir: t.TempDir(), people: people}
			knows := &cutShort{}
			at.config.Tools.(*sessiontest.Tools).OnInterrupted = knows.config("").Tools.Interrupted
			at.config.Dir = at.dir
			at.m = manager(t, at.config, sandboxtest.FakeConfig{})
			at.id = create(t, at.m, alice, "")
			r := waiting(t, at.m, at.id, asksTwo, 2)
			between(t, at)
			for _, asked := range knows.asked {
				if asked != fmt.Sprintf("%s %s %q", alice, at.id, r.Execution) {
					t.Errorf("it is taken for one that was cut short: %s", asked)
				}
			}
			if i, err := at.m.Info(alice, at.id); err != nil {
				t.Error(err)
			} else if i.Waiting == nil {
				t.Error("i.Waiting: got nil, want one")
			} else {
				expect.Equal(t, "i.Waiting.Execution", i.Waiting.Execution, r.Execution)
				expect.Equal(t, "i.State", i.State, session.Waiting)
			}
			people.decide(1, "10")
			people.decide(2, "20")
			ends(t, at.m, at.id, r.Execution)
			prints(t, at.m, at.id, "print(x, read('f'))", "31 two")
			if n := people.gaveUp(); len(n) != 0 {
				t.Errorf("given up were %v", n)
			}
		})
	}
}

func putFile(t *testing.T, m *session.Manager, id session.ID, name, text string) {
	t.Helper()
	tree, done, err := m.Files(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := tree.Write(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func elsewhere(t *testing.T, m *session.Manager, id session.ID, code string) {
	t.Helper()
	if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: code, Language: "javascript"}); err != nil {
		t.Fatal(err)
	}
}

// What ends a run that waits for good.
func TestARunThatWaitsIsGivenUp(t *testing.T) {
	ok := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, m *session.Manager, id session.ID, execution string) (notice string)
		says string
	}{
		"by other code in its interpreter": {func(t *testing.T, m *session.Manager, id session.ID, _ string) string {
			return prints(t, m, id, "print(x, 'other')", "1 other").Notice
		}, "(ap-1, ap-2), and was given up for this call"},
		"by cancelling it": {func(t *testing.T, m *session.Manager, id session.ID, execution string) string {
			n, err := m.Cancel(alice, id, execution)
			if n != 1 {
				t.Errorf("%d were stopped", n)
			}
			ok(t, err)
			return ""
		}, ""},
		"by cancelling all": {func(t *testing.T, m *session.Manager, id session.ID, _ string) string {
			n, err := m.Cancel(alice, id, "")
			if n != 1 {
				t.Errorf("%d were stopped", n)
			}
			ok(t, err)
			return ""
		}, ""},
		"by cancelling it asleep": {func(t *testing.T, m *session.Manager, id session.ID, execution string) string {
			ok(t, m.Sleep(alice, id))
			n, err := m.Cancel(alice, id, execution)
			if n != 1 {
				t.Errorf("%d were stopped", n)
			}
			ok(t, err)
			return ""
		}, ""},
		"by undoing it": {func(t *testing.T, m *session.Manager, id session.ID, _ string) string { return undo(t, m, id).Notice }, "was given up"},
		"by going back to where it waited": {func(t *testing.T, m *session.Manager, id session.ID, _ string) string {
			_, err := m.Checkpoint(t.Context(), alice, id, "here")
			ok(t, err)
			r, err := m.Restore(t.Context(), alice, id, "here")
			ok(t, err)
			return r.Notice
		}, "was given up"},
		"by a reset": {func(t *testing.T, m *session.Manager, id session.ID, _ string) string {
			_, err := m.Reset(t.Context(), alice, id)
			ok(t, err)
			return ""
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeople()
			m := manager(t, p.config(), sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 0")
			r := waiting(t, m, id, asksTwo, 2)
			says(t, c.end(t, m, id, r.Execution), c.says)
			notWaiting(t, m, id, r.Execution)
			if n := p.gaveUp(); !slices.Equal(n, []string{r.Execution}) {
				t.Errorf("given up were %v", n)
			}
			ok(t, m.Sleep(alice, id))
			notWaiting(t, m, id, r.Execution)
			if r := prints(t, m, id, "print('on')", "on"); r.Notice != "" {
				t.Errorf("the notice is %q", r.Notice)
			}
		})
	}
}

func TestARunThatWaitsEndsWithItsSession(t *testing.T) {
	for name, asleep := range map[string]bool{"awake": false, "asleep": true} {
		t.Run(name, func(t *testing.T) {
			p := newPeople()
			m := manager(t, p.config(), sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			r := waiting(t, m, id, asksTwo, 2)
			if asleep {
				if err := m.Sleep(alice, id); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Destroy(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
			if n := p.gaveUp(); !slices.Equal(n, []string{r.Execution}) {
				t.Errorf("given up were %v", n)
			}
			if all, err := m.WaitingRuns(""); err != nil {
				t.Error(err)
			} else if len(all) != 0 {
				t.Errorf(`m.WaitingRuns(""): got %v, want none`, all)
			}
		})
	}
}

// A run waits in one place: a copy of its session has its files and variables.
func TestACopyOfASessionDoesNotGoOnWithItsRun(t *testing.T) {
	p := newPeople()
	m := manager(t, p.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r := waiting(t, m, id, asksTwo, 2)
	forks, err := m.Fork(t.Context(), alice, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	copied, _, err := m.Import(t.Context(), alice, "", &archive)
	if err != nil {
		t.Fatal(err)
	}
	p.decide(1, "10")
	p.decide(2, "20")
	for _, one := range []session.ID{forks[0].ID, copied.ID} {
		notWaiting(t, m, one, r.Execution)
	}
	says(t, prints(t, m, forks[0].ID, "print(x, read('f'))", "1 one").Notice, "does so in the session that it was forked from")
	prints(t, m, copied.ID, "print(x, read('f'))", "1 one")
	ends(t, m, id, r.Execution)
	if len(p.gaveUp()) != 0 {
		t.Error("it was given up")
	}
}

// What was gone on with and cut short is not done again.
func TestARunGoesOnOnce(t *testing.T) {
	p := newPeople()
	config := p.config()
	dir := t.TempDir()
	config.Dir = dir
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r := waiting(t, m, id, asksTwo+"\ncall('effect', '')\nx = 100", 2)
	p.decide(1, "10")
	p.decide(2, "20")
	var copied string
	var second error
	p.onEffect(func() {
		copied = copyRunning(t, dir)
		_, second = goOn(m, id, r.Execution)
		if i, err := m.Info(alice, id); err != nil {
			t.Errorf("while it goes on: got error %v, want none", err)
		} else {
			expect.Equal(t, "while it goes on: i.Waiting", i.Waiting, nil)
			expect.Equal(t, "while it goes on: i.State", i.State, session.Running)
		}
	})
	ends(t, m, id, r.Execution)
	wantKind(t, second, fault.Conflict)
	prints(t, m, id, "print(x)", "100")
	p.onEffect(nil)
	config.Dir = copied
	next := manager(t, config, sandboxtest.FakeConfig{})
	if all, err := next.WaitingRuns(alice); err != nil {
		t.Error(err)
	} else if len(all) != 0 {
		t.Errorf("next.WaitingRuns(alice): got %v, want none", all)
	}
	notWaiting(t, next, id, r.Execution)
	if n := p.gaveUp(); !slices.Equal(n, []string{r.Execution}) {
		t.Errorf("given up were %v", n)
	}
	says(t, prints(t, next, id, "print(x, read('f'))", "1 one").Notice, r.Execution, "was interrupted when the server ended")
	if next := prints(t, next, id, "print('on')", "on"); next.Notice != "" {
		t.Errorf("next.Notice: got %q, want none", next.Notice)
	} else if p.effects != 1 {
		t.Errorf("p.effects: got %v, want 1", p.effects)
	}
}

// A run whose sandbox failed is over: who opens the session next is not told that it was
// cut short by the server's end.
func TestARunThatWentOnAndWhoseSandboxFailedIsOver(t *testing.T) {
	p := newPeople()
	config := p.config()
	config.Dir = t.TempDir()
	b := &mortal{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "mortal"})}
	config.Backends = []sandbox.Backend{b}
	m := manager(t, config, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r := waiting(t, m, id, asksTwo+"\ncall('effect', '')\nloop", 2)
	p.decide(1, "10")
	p.decide(2, "20")
	closed := make(chan error, 1)
	p.onEffect(func() { go func() { closed <- b.instances[0].Close() }() })
	_, err := goOn(m, id, r.Execution)
	wantKind(t, err, fault.Unavailable)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	notWaiting(t, m, id, r.Execution)
	config.Dir, config.Backends = copyRunning(t, config.Dir), []sandbox.Backend{&mortal{Fake: sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "mortal"})}}
	if r := prints(t, manager(t, config, sandboxtest.FakeConfig{}), id, "print(x, read('f'))", "1 one"); strings.Contains(r.Notice, "interrupted") {
		t.Errorf("the notice is %q", r.Notice)
	}
}

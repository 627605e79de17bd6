package session_test

import (
	"errors"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// inMachine is a run that waits in a session with a machine.
type inMachine struct {
	m         *session.Manager
	b         *sandboxtest.FakeKeeper
	id        session.ID
	dir       string
	execution string
	people    *people
}

// again has another process take the session over.
func (p *inMachine) again(t *testing.T, dir string) {
	config := p.people.config()
	config.Dir, p.dir = dir, dir
	p.m, p.b = keepers(t, config)
}

func waitsInMachine(t *testing.T) *inMachine {
	t.Helper()
	p := &inMachine{people: newPeople()}
	p.again(t, t.TempDir())
	p.id = create(t, p.m, alice, "")
	p.execution = waiting(t, p.m, p.id, asksTwo, 2).Execution
	p.people.decide(1, "10")
	p.people.decide(2, "20")
	return p
}

func TestARunThatWaitsInAMachineOutlives(t *testing.T) {
	ok := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, between := range map[string]func(t *testing.T, p *inMachine){
		"nothing":             func(*testing.T, *inMachine) {},
		"its session's sleep": func(t *testing.T, p *inMachine) { ok(t, p.m.Sleep(alice, p.id)) },
		"the process's end":   func(t *testing.T, p *inMachine) { ok(t, p.m.Close()); p.again(t, p.dir) },
		"the process's kill":  func(t *testing.T, p *inMachine) { p.again(t, copyRunning(t, p.dir)) },
		"two kills": func(t *testing.T, p *inMachine) {
			p.again(t, copyRunning(t, p.dir))
			_, err := p.m.Details(t.Context(), alice, p.id)
			ok(t, err)
			p.again(t, copyRunning(t, p.dir))
		},
		"a kill after a checkpoint": func(t *testing.T, p *inMachine) {
			_, err := p.m.Checkpoint(t.Context(), alice, p.id, "here")
			ok(t, err)
			p.again(t, copyRunning(t, p.dir))
		},
		"code in another interpreter": func(t *testing.T, p *inMachine) { elsewhere(t, p.m, p.id, "let y = 1") },
		"that, and sleep": func(t *testing.T, p *inMachine) {
			elsewhere(t, p.m, p.id, "let y = 1")
			ok(t, p.m.Sleep(alice, p.id))
		},
		"a fork": func(t *testing.T, p *inMachine) {
			forks, err := p.m.Fork(t.Context(), alice, p.id, "", 1)
			ok(t, err)
			notWaiting(t, p.m, forks[0].ID, p.execution)
			prints(t, p.m, forks[0].ID, "print(x, read('f'))", "1 one")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := waitsInMachine(t)
			between(t, p)
			if i, err := p.m.Info(alice, p.id); err != nil {
				t.Error(err)
			} else if i.Waiting == nil {
				t.Error("i.Waiting: got nil, want one")
			} else if i.Waiting.Execution != p.execution {
				t.Errorf("i.Waiting.Execution: got %v, want %v", i.Waiting.Execution, p.execution)
			}
			ends(t, p.m, p.id, p.execution)
			prints(t, p.m, p.id, "print(x, read('f'))", "31 two")
			notWaiting(t, p.m, p.id, p.execution)
			if n := p.people.gaveUp(); len(n) != 0 {
				t.Errorf("given up were %v", n)
			}
		})
	}
}

func TestARunThatWaitsInAMachineIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, p *inMachine)
		told int // how often
	}{
		"by other code": {func(t *testing.T, p *inMachine) { prints(t, p.m, p.id, "print(x)", "1") }, 1},
		"by a kill after code in another interpreter": {func(t *testing.T, p *inMachine) {
			elsewhere(t, p.m, p.id, "let y = 1")
			p.again(t, copyRunning(t, p.dir)) // its machine was not saved since
			says(t, prints(t, p.m, p.id, "print('on')", "on").Notice, "other code ran in its machine since")
		}, 1},
		"by a machine that cannot be gone on with": {func(t *testing.T, p *inMachine) {
			if err := p.m.Sleep(alice, p.id); err != nil {
				t.Fatal(err)
			}
			p.b.Forget = func() error { return fault.New(fault.Unsupported, "another build made it") }
			if _, err := goOn(p.m, p.id, p.execution); fault.KindOf(err) != fault.Unsupported {
				t.Errorf("it goes on: %v", err)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := waitsInMachine(t)
			c.end(t, p)
			notWaiting(t, p.m, p.id, p.execution)
			if n := p.people.gaveUp(); len(n) != c.told {
				t.Errorf("given up were %v", n)
			}
		})
	}
}

// What was gone on with, and cut short by a kill, is not done again.
func TestARunInAMachineGoesOnOnce(t *testing.T) {
	p := waitsInMachine(t)
	killed := ""
	p.people.mu.Lock()
	p.people.whenAsked = func() { killed = copyRunning(t, p.dir) }
	p.people.mu.Unlock()
	ends(t, p.m, p.id, p.execution)
	p.again(t, killed)
	notWaiting(t, p.m, p.id, p.execution)
	r := execute(t, p.m, p.id, "print(x, read('f'))")
	says(t, r.Notice, "was interrupted when the server ended")
	if r.Stdout != "1 one\n" {
		t.Errorf("it printed %q", r.Stdout)
	}
}

// A machine that cannot be saved waits in place.
func TestARunWaitsInPlaceWhereItsMachineCannotBeSaved(t *testing.T) {
	p := &inMachine{people: newPeople()}
	p.again(t, t.TempDir())
	refused := make(chan struct{}, 1)
	p.b.Refuse = func() error {
		select {
		case refused <- struct{}{}:
		default:
		}
		return errors.New("on purpose")
	}
	p.id = create(t, p.m, alice, "")
	go func() {
		<-refused
		p.people.decide(1, "10")
		p.people.decide(2, "20")
	}()
	r := execute(t, p.m, p.id, asksTwo)
	expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.Exited)
	expect.Equal(t, "r.Stdout", r.Stdout, "before\nafter 30\n")
	expect.Equal(t, "len(r.Waiting)", len(r.Waiting), 0)
}

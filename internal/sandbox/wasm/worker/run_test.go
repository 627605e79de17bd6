package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

// counter is a module that can do nothing but count its fuel.
type counter struct {
	module
	value int32
}

func (*counter) watchInterrupts(_, _ <-chan struct{}, _ []word) func() bool { return nil }

func (c *counter) counter() int32     { return c.value }
func (c *counter) setCounter(v int32) { c.value = v }

// script is a language whose driver is a function of the test.
type script func(in *instance, request map[string]any) (string, error)

type scripted struct {
	language
	in     *instance
	answer script
	asked  []string
	full   bool // there is no room for another run
}

func (s *scripted) room(machine, uint64) (bool, error) { return !s.full, nil }

func (s *scripted) request(_ machine, _ []uint64, body []byte) ([]byte, error) {
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	s.asked = append(s.asked, request["op"].(string))
	answer, err := s.answer(s.in, request)
	return []byte(answer), err
}

// newScripted makes an instance without a guest: a memory, a counter and a
// driver of the test's.
func newScripted(t *testing.T, answer script) (*instance, *scripted) {
	t.Helper()
	memory, err := linear.New(nil, 4*reserve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(memory.Free)
	if memory.Reallocate(1<<16) == nil {
		t.Fatal("there is no memory")
	}
	s := &scripted{answer: answer}
	in := &instance{program: &program{language: s, image: &linear.Image{}}, vm: &vm{module: &counter{}, memory: memory}}
	in.connect(wire.NewConn(&wiretest.Recorder{}))
	s.in = in
	return in, s
}

// runCode executes a program as it is.
func (in *instance) runCode(code string) (sandbox.Exit, []uint32, error) {
	body := wire.RunBody{Code: code}
	return in.execute(body, execRequest(code, "", body))
}

// runs executes the program "x", which must end so; Error and Usage are not looked at.
func (in *instance) runs(t *testing.T, want sandbox.Exit) sandbox.Exit {
	t.Helper()
	exit, _, err := in.runCode("x")
	if err != nil {
		t.Fatalf("running it: %v", err)
	}
	if exit.Cause != want.Cause {
		t.Errorf("it %v, want %v (error %+v)", exit.Cause, want.Cause, exit.Error)
	}
	if exit.State != want.State {
		t.Errorf("its state is %v, want %v", exit.State, want.State)
	}
	if exit.Code != want.Code {
		t.Errorf("its code is %d, want %d", exit.Code, want.Code)
	}
	if exit.Result != want.Result {
		t.Errorf("its result is %q, want %q", exit.Result, want.Result)
	}
	return exit
}

// wantAsked checks what the driver was asked for.
func (s *scripted) wantAsked(t *testing.T, want string) {
	t.Helper()
	if got := fmt.Sprint(s.asked); got != want {
		t.Errorf("the driver was asked for %s, want %s", got, want)
	}
}

// useUp takes so much of the guest's fuel.
func (in *instance) useUp(n int32) {
	in.vm.setCounter(in.counter() - n)
}

func TestFuelIsCountedAtEveryTickAndAtTheEnd(t *testing.T) {
	in, _ := newScripted(t, nil)
	in.ends.Control.Begin(0)
	in.begin(wire.RunBody{})
	for range 3 {
		in.useUp(quantum)
		in.tick()
	}
	in.useUp(100)
	if cause := in.end(); cause != 0 {
		t.Errorf("it was stopped because of %v", cause)
	}
	if got, want := in.meter.used, uint64(3*quantum+100); got != want {
		t.Errorf("%d were counted, want %d", got, want)
	}
	if in.counter() < 1<<30 {
		t.Error("the guest could tick outside of a run")
	}
}

func TestAProgramWithoutFuelIsInterruptedOnce(t *testing.T) {
	in, _ := newScripted(t, nil)
	for _, w := range []word{{address: 1 << 30, bits: 1}, {address: 1<<32 - 2, bits: 1}, {address: 18, bits: 1}} {
		if in.vm.has(w) {
			t.Errorf("the guest has a word at %#x", w.address)
		}
	}
	in.words = []word{{address: 16, bits: 1}, {address: 20, bits: 0x80000100}}
	binary.LittleEndian.PutUint32(in.bytes()[20:], 0x40)
	raised := func() [2]uint32 {
		return [2]uint32{binary.LittleEndian.Uint32(in.bytes()[16:]), binary.LittleEndian.Uint32(in.bytes()[20:])}
	}
	in.ends.Control.Begin(time.Hour)
	in.begin(wire.RunBody{Limits: sandbox.RunLimits{Fuel: quantum + 10}})
	in.useUp(quantum)
	in.tick()
	if got, want := raised(), [2]uint32{0, 0x40}; got != want {
		t.Errorf("before the fuel is used up memory is %#x, want %#x", got, want)
	}
	in.useUp(10)
	in.tick()
	if got, want := raised(), [2]uint32{1, 0x80000140}; got != want {
		t.Errorf("when it is used up memory is %#x, want %#x", got, want)
	}
	clear(in.bytes()[:64]) // the guest has seen it
	in.useUp(quantum)
	in.tick()
	if got, want := raised(), [2]uint32{}; got != want {
		t.Errorf("a program that cleans up is interrupted again: memory is %#x", got)
	}
	if cause := in.end(); cause != sandbox.OutOfFuel {
		t.Errorf("it was stopped because of %v, want %v", cause, sandbox.OutOfFuel)
	}
	in.ends.Control.Begin(0)
	in.begin(wire.RunBody{})
	in.ends.Control.Interrupt(sandbox.Cancelled)
	in.poll()
	if raised()[0] != 1 {
		t.Error("the next run cannot be interrupted")
	}
	in.end()
}

func TestAProgramThatDoesNotEndIsUnwoundAtItsNextTick(t *testing.T) {
	in, _ := newScripted(t, nil)
	in.ends.Control.Begin(0)
	in.begin(wire.RunBody{})
	in.poll()
	in.ends.Control.Force(sandbox.TimedOut)
	defer func() {
		if r := recover(); r != errKilled {
			t.Errorf("it was unwound with %v", r)
		}
		in.end()
	}()
	in.useUp(quantum)
	in.tick()
	t.Error("it goes on")
}

func TestAWaitingProgramIsResumedWhenItsTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var resumed []time.Duration
		in, s := newScripted(t, func(_ *instance, request map[string]any) (string, error) {
			resumed = append(resumed, time.Since(begin))
			switch len(resumed) {
			case 1:
				return `{"status":"waiting","timeout":1.5}`, nil
			case 2:
				return `{"status":"waiting","timeout":0}`, nil
			case 3:
				return `{"status":"waiting","timeout":-7}`, nil
			}
			return `{"status":"done","result":"5"}`, nil
		})
		in.ends.Control.Begin(0)
		in.runs(t, sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept, Result: "5"})
		s.wantAsked(t, "[exec resume resume resume]")
		if got, want := fmt.Sprint(resumed), "[0s 1.5s 1.5s 1.5s]"; got != want {
			t.Errorf("it was asked at %s, want %s", got, want)
		}
	})
}

func TestAWaitingProgramIsInterruptedThroughItsDriver(t *testing.T) {
	for name, timeout := range map[string]string{"for a timer": "3600", "for nothing": "null"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, s := newScripted(t, func(_ *instance, request map[string]any) (string, error) {
					if request["op"] == "interrupt" {
						return `{"status":"done","exit_code":130,"error":{"type":"KeyboardInterrupt","message":"","kind":"interrupted"}}`, nil
					}
					return `{"status":"waiting","timeout":` + timeout + `}`, nil
				})
				in.words = []word{{address: 16, bits: 1}}
				in.ends.Control.Begin(time.Hour)
				time.AfterFunc(time.Minute, func() { in.ends.Control.Interrupt(sandbox.TimedOut) })
				exit := in.runs(t, sandbox.Exit{Cause: sandbox.TimedOut, State: sandbox.Kept, Code: 130})
				if exit.Error == nil || exit.Error.Type != "KeyboardInterrupt" {
					t.Errorf("its error is %+v, want a KeyboardInterrupt", exit.Error)
				}
				s.wantAsked(t, "[exec interrupt]")
				if in.bytes()[16] != 0 {
					t.Error("the interrupt lies in memory as well, and would hit the next run")
				}
			})
		})
	}
}

func TestAProgramIsInterruptedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		sees bool
		want string
	}{
		"seen in memory: it waits for its clean-up":              {true, "[exec resume]"},
		"set in memory as it began to wait: its driver hears it": {false, "[exec interrupt]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, s := newScripted(t, func(in *instance, request map[string]any) (string, error) {
					if request["op"] != "exec" {
						return `{"status":"done","exit_code":130,"error":{"type":"KeyboardInterrupt","message":"","kind":"interrupted"}}`, nil
					}
					in.ends.Control.Interrupt(sandbox.TimedOut)
					in.poll()
					if in.bytes()[16] != 1 {
						t.Error("nothing was set")
					}
					if c.sees {
						in.bytes()[16] = 0
					}
					return `{"status":"waiting","timeout":5}`, nil
				})
				in.words = []word{{address: 16, bits: 1}}
				in.bytes()[16] = 1 // left from the last run
				in.ends.Control.Begin(time.Hour)
				in.runs(t, sandbox.Exit{Cause: sandbox.TimedOut, State: sandbox.Kept, Code: 130})
				s.wantAsked(t, c.want)
				if in.bytes()[16] != 0 {
					t.Error("the interrupt would hit the next run")
				}
			})
		})
	}
}

func TestHowARunEnded(t *testing.T) {
	answers := func(answer string, err error) script {
		return func(*instance, map[string]any) (string, error) { return answer, err }
	}
	for name, c := range map[string]struct {
		answer script
		want   sandbox.Exit
	}{
		"well":                  {answers(`{"status":"done","result":"1"}`, nil), sandbox.Exit{Cause: sandbox.Exited, Result: "1"}},
		"with a code":           {answers(`{"status":"done","exit_code":3}`, nil), sandbox.Exit{Cause: sandbox.Exited, Code: 3}},
		"with an error":         {answers(`{"status":"done","exit_code":1,"error":{"type":"E","line":4}}`, nil), sandbox.Exit{Cause: sandbox.Exited, Code: 1, Error: &sandbox.ProgramError{Type: "E", Line: 4}}},
		"out of memory":         {answers(`{"status":"done","exit_code":1,"error":{"type":"MemoryError","kind":"memory"}}`, nil), sandbox.Exit{Cause: sandbox.OutOfMemory, Code: 1, Error: &sandbox.ProgramError{Type: "MemoryError"}}},
		"out of space":          {answers(`{"status":"done","exit_code":1,"error":{"type":"OSError","kind":"space"}}`, nil), sandbox.Exit{Cause: sandbox.OutOfSpace, Code: 1, Error: &sandbox.ProgramError{Type: "OSError"}}},
		"a kind without a code": {answers(`{"status":"done","error":{"type":"MemoryError","kind":"memory"}}`, nil), sandbox.Exit{Cause: sandbox.OutOfMemory, Code: 1, Error: &sandbox.ProgramError{Type: "MemoryError"}}},
		"no memory to answer with": {answers("", errMemory), sandbox.Exit{
			Cause: sandbox.OutOfMemory, Code: 1, Error: &sandbox.ProgramError{Type: "MemoryError", Message: "the program used all the memory it may have"}}},
		"the driver was interrupted, by itself": {answers("", errInterrupted), sandbox.Exit{
			Cause: sandbox.Exited, Code: 1, Error: &sandbox.ProgramError{Type: "KeyboardInterrupt", Message: "the program was interrupted"}}},
		"the driver was interrupted": {
			func(in *instance, _ map[string]any) (string, error) {
				in.ends.Control.Interrupt(sandbox.Cancelled)
				return "", errInterrupted
			}, sandbox.Exit{Cause: sandbox.Cancelled, Code: 1, Error: &sandbox.ProgramError{Type: "KeyboardInterrupt", Message: "the program was interrupted"}}},
		"interrupted as it ended well: nobody saw it": {
			func(in *instance, _ map[string]any) (string, error) {
				in.ends.Control.Interrupt(sandbox.TimedOut)
				return `{"status":"done","result":"1"}`, nil
			}, sandbox.Exit{Cause: sandbox.Exited, Result: "1"}},
		"interrupted, and it ended well: too late all the same": {
			func(in *instance, _ map[string]any) (string, error) {
				in.words = []word{{16, 1}}
				in.ends.Control.Interrupt(sandbox.TimedOut)
				in.poll()
				return `{"status":"done","result":"1"}`, nil
			}, sandbox.Exit{Cause: sandbox.TimedOut, Result: "1", Code: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := newScripted(t, c.answer)
			in.ends.Control.Begin(time.Hour)
			exit, _, err := in.runCode("x")
			if err != nil {
				t.Fatal(err)
			}
			c.want.State = sandbox.Kept
			exit.Usage = sandbox.Usage{}
			got, _ := json.Marshal(exit)
			want, _ := json.Marshal(c.want)
			if string(got) != string(want) {
				t.Errorf("it is\n%s, want\n%s", got, want)
			}
		})
	}
}

// A run that leaves nothing for the next one would leave a session dead.
func TestARunThatLeavesNoMemoryIsTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		full   bool
		size   uint64
		state  sandbox.State
		cause  sandbox.Cause
	}{
		"there is room to grow":                {`{"status":"done","result":"1"}`, true, 2 * reserve, sandbox.Kept, sandbox.Exited},
		"none, but there is room inside":       {`{"status":"done","result":"1"}`, false, 4 * reserve, sandbox.Kept, sandbox.Exited},
		"none at all":                          {`{"status":"done","result":"1"}`, true, 4 * reserve, sandbox.Restored, sandbox.OutOfMemory},
		"none at all, and an error of its own": {`{"status":"done","exit_code":1,"error":{"type":"MemoryError"}}`, true, 4 * reserve, sandbox.Restored, sandbox.OutOfMemory},
	} {
		t.Run(name, func(t *testing.T) {
			in, s := newScripted(t, func(*instance, map[string]any) (string, error) { return c.answer, nil })
			s.full = c.full
			if in.vm.memory.Reallocate(c.size) == nil {
				t.Fatal("there is no memory")
			}
			in.ends.Control.Begin(0)
			want := sandbox.Exit{Cause: c.cause, State: c.state, Result: "1"}
			failed := c.state != sandbox.Kept
			if failed {
				want.Code, want.Result = 1, ""
			}
			if exit := in.runs(t, want); failed != (exit.Error != nil) {
				t.Errorf("its error is %+v, want one: %v", exit.Error, failed)
			}
		})
	}
}

// What the interpreter does not survive is explained before it is made again.
func TestWhatTheInterpreterDoesNotSurvive(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
		cause   sandbox.Cause
		code    int
		kind    string
		message string
	}{
		"it was stopped by force": {fmt.Errorf("wasm: %w", errKilled), false, 0, 1, "Stopped", "the program did not end when it was interrupted and was stopped by force"},
		"it ended itself":         {&wasi.ExitError{Code: 3}, false, 0, 3, "", ""},
		"it crashed for want of memory": {errors.New("unreachable"), true, sandbox.OutOfMemory, 1, "MemoryError",
			"the program used all the memory it may have"},
		"it crashed": {errors.New("wasm error: unreachable (recovered by wazero)\nwasm stack trace:\n\tsecret"), false, sandbox.Crashed, 1, "Crash",
			"the interpreter crashed: wasm error: unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			var exit sandbox.Exit
			(&instance{}).explain(&exit, c.err, c.refused)
			if exit.State != sandbox.Restored {
				t.Errorf("its state is %v, want %v", exit.State, sandbox.Restored)
			}
			if exit.Cause != c.cause {
				t.Errorf("its cause is %v, want %v", exit.Cause, c.cause)
			}
			if exit.Code != c.code {
				t.Errorf("its code is %d, want %d", exit.Code, c.code)
			}
			if got, want := exit.Error != nil, c.kind != ""; got != want {
				t.Errorf("it has an error: %v, want %v", got, want)
			}
			var got sandbox.ProgramError
			if exit.Error != nil {
				got = *exit.Error
			}
			if want := (sandbox.ProgramError{Type: c.kind, Message: c.message}); got != want {
				t.Errorf("the error is %+v, want %+v", got, want)
			}
		})
	}
}

func TestWhatTheGuestNamesIsInItsMemory(t *testing.T) {
	memory := make([]byte, 100)
	for _, c := range []struct {
		address, length uint32
		ok              bool
	}{{0, 0, true}, {0, 100, true}, {100, 0, true}, {99, 1, true}, {0, 101, false}, {100, 1, false}, {101, 0, false}, {1<<32 - 1, 1, false}, {1, 1<<32 - 1, false}} {
		b, err := slice(memory, c.address, c.length)
		if (err == nil) != c.ok || c.ok && (len(b) != int(c.length) || cap(b) != len(b)) {
			t.Errorf("%d bytes at %d: %d bytes, %v", c.length, c.address, len(b), err)
		}
	}
}

func TestMessagesFromTheGuest(t *testing.T) {
	in, _ := newScripted(t, nil)
	in.ends.Out.Begin(sandbox.RunLimits{DisplayBytes: 1 << 10})
	for name, c := range map[string]struct{ message, answer string }{
		"a display":                   {"{\"op\":\"display\",\"mime\":\"a/b\"}\nxyz", "{}"},
		"no JSON":                     {"nonsense", ""},
		"nothing":                     {"", ""},
		"of an unknown kind":          {`{"op":"open"}`, ""},
		"a type that is not a string": {`{"op":"display","mime":5}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := in.message([]byte(c.message))
			if string(answer) != c.answer {
				t.Errorf("it was answered with %q, want %q", answer, c.answer)
			}
			if got, want := err != nil, c.answer == ""; got != want {
				t.Errorf("there is an error: %v (%v), want %v", got, err, want)
			}
		})
	}
	if answer, err := in.message([]byte("{\"op\":\"display\",\"mime\":\"a/b\"}\nx")); err != nil || string(answer) == "{}" {
		t.Errorf("one over the limit was answered with %q, %v", answer, err)
	}
}

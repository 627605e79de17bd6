package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire/serve"
)

// javascript drives the QuickJS guest through the C API that the module of
// quickjs-wasi exports. A value of the language is the address of a JSValue.
//
// The driver is one function, driver(what, value): it is called with
// ("handle", request), with ("settle", promise) or ("threw", error) for what
// evaluating a program gave, and answers with JSON. Programs are evaluated by
// the host, in the global scope, so that their declarations stay.
type javascript struct{}

// The flags of qjs_eval.
const (
	evalGlobal = 0
	evalAsync  = 1 << 7 // top-level await; the value is a promise
)

// scriptStack is how much of the module's stack a program may use, in bytes.
const scriptStack = 512 << 10

func (javascript) imports() []hostFunc {
	words := func(n int) (types []api.ValueType) {
		for range n {
			types = append(types, i32)
		}
		return types
	}
	return []hostFunc{
		{"env", "host_interrupt", nil, words(1), hostInterrupt},
		{"env", "host_call", words(5), words(1), hostCall},
		{"env", "host_promise_rejection", words(3), nil, hostRejection},
		{"env", "host_module_normalize", words(2), words(1), hostNormalize},
		{"env", "host_module_load", words(2), words(1), hostLoad},
		{"env", "host_get_timezone_offset", words(2), words(1), func(_ *instance, stack []uint64) { stack[0] = 0 }}, // UTC
	}
}

// interrupts has none: QuickJS asks host_interrupt.
func (javascript) interrupts(machine) []word { return nil }

func (javascript) room(m machine, size uint64) (bool, error) {
	return canAllocate(m, size, "wasm_malloc", "wasm_free")
}

// hostInterrupt is asked by QuickJS whether to stop the program, and called by
// the instrumented code when its fuel is used up: only then is the counter
// below zero.
func hostInterrupt(in *instance, stack []uint64) {
	if in.counter() < 0 {
		in.tick()
		stack[0] = 0
		return
	}
	stack[0] = 0
	if in.script.draining {
		stack[0] = 1
	} else if in.script.exiting || in.interruptDue() {
		in.raised++
		stack[0] = 1
	}
}

// interruptDue reports whether QuickJS has yet to throw the run's interrupt.
func (in *instance) interruptDue() bool {
	return in.ends.Control.Level() == serve.Interrupted && in.raised == 0
}

// boot starts the engine and evaluates the driver. The state is the driver's
// function.
func (j javascript) boot(m machine) ([]uint64, error) {
	g, err := guest.Open("javascript")
	if err != nil {
		return nil, err
	}
	source, err := g.Driver()
	if err != nil {
		return nil, err
	}
	if _, err := m.call("_initialize"); err != nil {
		return nil, err
	}
	if failed, err := m.call("qjs_init"); err != nil || failed != 0 {
		return nil, errors.Join(errors.New("the engine did not start"), err)
	}
	for _, setting := range []struct {
		name  string
		value uint64
	}{
		{"qjs_set_interrupt_handler", 1}, {"qjs_set_promise_rejection_handler", 1},
		{"qjs_set_module_loader", 1}, {"qjs_set_max_stack_size", scriptStack},
	} {
		if _, err := m.call(setting.name, setting.value); err != nil {
			return nil, err
		}
	}
	driver, err := j.install(m, source)
	if err != nil {
		return nil, err
	}
	_, err = m.call("qjs_run_gc")
	return []uint64{driver}, err
}

// install evaluates the driver's source and gives it the door to the host.
func (j javascript) install(m machine, source string) (uint64, error) {
	install, err := evalValue(m, source, "driver.js", evalGlobal)
	if err != nil {
		return 0, err
	}
	if err := threw(m, install); err != nil {
		return 0, err
	}
	const name = "paddock"
	address, err := putString(m, name)
	if err != nil {
		return 0, err
	}
	door, err := m.call("qjs_new_host_function", address, uint64(len(name)), 0)
	if err != nil {
		return 0, err
	}
	driver, err := callValue(m, install, door)
	if err != nil {
		return 0, err
	}
	return driver, threw(m, driver)
}

// threw gives the exception that value stands for.
func threw(m machine, value uint64) error {
	is, err := m.call("qjs_is_exception", value)
	if err != nil || is == 0 {
		return err
	}
	e, err := m.call("qjs_get_exception")
	if err != nil {
		return err
	}
	text, err := getString(m, e)
	if err != nil {
		return err
	}
	return fmt.Errorf("the driver threw: %s", text)
}

// request answers a request with the driver's help.
func (j javascript) request(m machine, state []uint64, request []byte) ([]byte, error) {
	driver := state[0]
	var r struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	switch r.Op {
	case "exec":
		return j.exec(m, driver, request)
	case "resume":
		answer, err := j.ask(m, driver, "handle", string(request))
		if err != nil || string(answer) != obeyed && string(answer) != threwOnce {
			return answer, err
		}
		return j.pump(m, driver)
	}
	return j.ask(m, driver, "handle", string(request))
}

// exec evaluates a program that the driver has prepared.
func (j javascript) exec(m machine, driver uint64, request []byte) ([]byte, error) {
	answer, err := j.ask(m, driver, "handle", string(request))
	if err != nil {
		return nil, err
	}
	if stopped(m) {
		return j.stop(m, driver)
	}
	if string(answer) == threwOnce {
		return j.pump(m, driver)
	}
	var prepared struct {
		Code string `json:"code"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(answer, &prepared); err != nil {
		return nil, err
	}
	value, err := evalValue(m, prepared.Code, prepared.Name, evalGlobal|evalAsync)
	if err != nil {
		return nil, err
	}
	what := "settle"
	if is, err := m.call("qjs_is_exception", value); err != nil {
		return nil, err
	} else if is != 0 {
		what = "threw"
		if value, err = m.call("qjs_get_exception"); err != nil {
			return nil, err
		}
	}
	if stopped(m) {
		return j.stop(m, driver)
	}
	if _, err := j.tell(m, driver, what, value); err != nil {
		return nil, err
	}
	return j.pump(m, driver)
}

// stopped tells whether the program was ended from outside: the engine says so
// by an exception that nothing catches.
func stopped(m machine) bool {
	v, ok := m.(*vm)
	return ok && (v.in.script.exiting || v.in.raised > 0 || v.in.ends.Control.Level() != serve.Going)
}

// stop has the driver conclude a program that was ended.
func (j javascript) stop(m machine, driver uint64) ([]byte, error) {
	op := `{"op":"interrupt"}`
	exiting := false
	if v, ok := m.(*vm); ok {
		v.in.raised++ // nothing interrupts the driver now
		exiting, v.in.script.exiting = v.in.script.exiting, false
	}
	if exiting {
		op = `{"op":"exited"}`
	}
	answer, err := j.ask(m, driver, "handle", op)
	if err != nil {
		return nil, err
	}
	if string(answer) == threwOnce {
		return nil, errDriver
	}
	dry, err := drain(m, exiting)
	if err != nil || dry {
		return answer, err
	}
	var o outcome
	if err := json.Unmarshal(answer, &o); err != nil {
		return nil, err
	}
	return nil, &wasi.ExitError{Code: uint32(o.ExitCode)} // only a fresh interpreter is free of the rest
}

// maxDrained bounds how many jobs of a program that ended itself are run out;
// one that was interrupted is bounded by its grace.
const maxDrained = 20_000

// drain lets what the program's promises have in store run out, without output
// and with an interrupt for whatever takes long: it may not go on within the
// next program. It tells whether nothing is left.
func drain(m machine, bounded bool) (dry bool, err error) {
	if v, ok := m.(*vm); ok {
		v.in.script.draining = true
		defer func() { v.in.script.draining = false }()
	}
	for n := 0; n < maxDrained || !bounded; n++ {
		ran, err := m.call("qjs_execute_pending_job")
		if err != nil || ran == 0 {
			return true, err
		}
		e, err := m.call("qjs_get_exception")
		if err != nil {
			return false, err
		}
		if err := free(m, e); err != nil {
			return false, err
		}
	}
	return false, nil
}

// pump runs what is pending until the driver knows the outcome, or only time
// can help.
func (j javascript) pump(m machine, driver uint64) ([]byte, error) {
	for threw := false; ; {
		for ran := uint64(1); int32(ran) > 0; {
			if stopped(m) { // before the next job: nothing would stop it
				return j.stop(m, driver)
			}
			var err error
			if ran, err = m.call("qjs_execute_pending_job"); err != nil {
				return nil, err
			}
		}
		if stopped(m) {
			return j.stop(m, driver)
		}
		answer, err := j.ask(m, driver, "handle", `{"op":"poll"}`)
		if err != nil {
			return nil, err
		}
		if stopped(m) {
			return j.stop(m, driver)
		}
		switch string(answer) {
		case again:
			threw = false
		case threwOnce:
			if threw {
				return nil, errDriver
			}
			threw = true
		default:
			return answer, nil
		}
	}
}

// What the driver answers in place of an outcome.
const (
	obeyed    = `"ok"`    // it has done what it was asked
	again     = `"again"` // it has done something, and more may be pending now
	threwOnce = `"threw"` // it was thrown out of what it did, and knows why
)

// errDriver is for a program that broke the driver.
var errDriver = errors.New("the driver did not answer")

// ask calls the driver with a string.
func (j javascript) ask(m machine, driver uint64, what, text string) ([]byte, error) {
	value, err := newString(m, text)
	if err != nil {
		return nil, err
	}
	return j.tell(m, driver, what, value)
}

// tell calls the driver with a value, which it frees.
func (j javascript) tell(m machine, driver uint64, what string, value uint64) ([]byte, error) {
	verb, err := newString(m, what)
	if err != nil {
		return nil, err
	}
	result, err := callValue(m, driver, verb, value)
	if err != nil {
		return nil, err
	}
	is, err := m.call("qjs_is_exception", result)
	if err != nil {
		return nil, err
	}
	if is != 0 {
		return j.failed(m, driver)
	}
	text, err := getString(m, result)
	if err != nil {
		return nil, err
	}
	return []byte(text), free(m, verb, value, result)
}

// failed is for a driver that threw: a timer's callback did, which is the
// program's error, or the program was stopped, or no memory was left.
func (j javascript) failed(m machine, driver uint64) ([]byte, error) {
	e, err := m.call("qjs_get_exception")
	if err != nil {
		return nil, err
	}
	if stopped(m) {
		return []byte(threwOnce), nil
	}
	text, err := getString(m, e)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "out of memory") {
		return nil, errMemory
	}
	if _, err := j.tell(m, driver, "threw", e); err != nil {
		return nil, err
	}
	return []byte(threwOnce), nil
}

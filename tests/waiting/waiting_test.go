// Package waiting has programs of the real guests wait for a person, in processes that
// are killed meanwhile, and go on in others: once.
//
//	go test ./tests/waiting -engine wazero
//	CGO_ENABLED=0 go test ./tests/waiting -run Machine
package waiting

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

var engine = flag.String("engine", "", "the only engine to test: native or wazero; empty: both")

// serverRole is the name (argv[0]) of the test binary as a process that will be killed:
// its arguments are the state folder, the cache, the engine, the language, and at what
// event it stops, the how manieth of its kind.
const serverRole = "paddock-test-waiting"

func TestMain(m *testing.M) {
	switch {
	case worker.Requested(os.Args):
		os.Exit(worker.Main(os.Args))
	case linux.Requested(os.Args):
		os.Exit(linux.Main(os.Args))
	case agent.Requested(os.Args):
		os.Exit(agent.Main(os.Args))
	}
	if len(os.Args) > 0 && os.Args[0] == serverRole {
		if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

const (
	owner = session.Owner("alice")
	id    = session.ID("waits")
)

// programs wait for two calls of "approve" at once, and call "effect" then.
var programs = map[string]string{
	"python": `
import asyncio, servers
@servers.tool('s', 'approve', {'text': 'text'})
def approve(text): ''
@servers.tool('s', 'effect', {'text': 'text'})
def effect(text): ''
class Plan:
    total = 1
plan = Plan()
lines = open('/workspace/f', 'w')
lines.write('one\n')
lines.flush()
print('before')
many = sum(map(int, await asyncio.gather(*(approve.aio(str(n)) for n in range(2)))))
print('after', many)
effect('done')
plan.total += many
lines.write('two\n')
lines.close()
`,
	"javascript": `
import { call } from 'servers';
import fs from 'fs';
globalThis.plan = { total: 1 };
const file = fs.openSync('/workspace/f', 'w');
fs.writeSync(file, 'one\n');
console.log('before');
const all = await Promise.all([0, 1].map((n) => call('s', 'approve', { text: String(n) })));
const many = all.reduce((a, b) => a + Number(b), 0);
console.log('after', many);
await call('s', 'effect', { text: 'done' });
plan.total += many;
fs.writeSync(file, 'two\n');
fs.closeSync(file);
`,
}

var shows = map[string]string{"python": "print(plan.total, open('/workspace/f').read().split())", "javascript": "console.log(plan.total, require('fs').readFileSync('/workspace/f', 'utf8').trim().split('\\n'))"}

// place is a state folder with a process that has it open.
type place struct {
	*session.Manager
	backend sandbox.Backend
	dir     string
	allowed bool               // what is asked for
	tell    func(event string) // is told what happens
}

func open(dir, cache, engine string, tell func(string)) (*place, error) {
	p := &place{dir: dir, tell: tell}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	life, err := session.NewLife(dir)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if engine == linux.Name {
		p.backend, err = linux.New(linux.Config{Dir: filepath.Join(dir, "boxes"), Inherit: life.File(), Log: log})
	} else {
		p.backend, err = wasm.New(wasm.Config{CacheDir: cache, OwnersDir: filepath.Join(dir, "owners"), Inherit: life.File(), Engine: engine, Log: log})
	}
	if err != nil {
		return nil, err
	}
	p.Manager, err = session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{p.backend}, Life: life, Log: log, WaitInPlace: 1, Tools: &sessiontest.Tools{OnCall: p.call}})
	return p, err
}

// call answers a program, and notes each effect on the disk of the host.
func (p *place) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	var said struct {
		Tool      string
		Arguments struct{ Text string }
	}
	if err := json.Unmarshal(c.Body, &said); err != nil {
		return nil
	}
	p.tell(said.Tool)
	switch {
	case said.Tool == "effect":
		f, err := os.OpenFile(filepath.Join(p.dir, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil
		}
		defer f.Close()
		if _, err := f.WriteString(run.Execution + "\n"); err != nil {
			return nil
		}
		p.tell("made")
		return []byte(`{"value":"ok"}`)
	case p.allowed:
		return []byte(`{"value":"1` + said.Arguments.Text + `"}`)
	}
	run.Suspend(fmt.Sprint("ap-", c.Number))
	<-ctx.Done()
	return nil
}

func (p *place) effects() int {
	data, err := os.ReadFile(filepath.Join(p.dir, "effects"))
	if err != nil {
		return 0
	}
	return strings.Count(string(data), "\n")
}

// serve runs a program and goes on with it, and tells where it is. At the event it stops
// until it is killed.
func serve(dir, cache, engine, language, event, n string) error {
	var mu sync.Mutex
	count := 0
	tell := func(what string) {
		mu.Lock()
		if what == event {
			count++
		}
		stop := what == event && strconv.Itoa(count) == n
		mu.Unlock()
		if stop {
			fmt.Println("stopped")
			select {}
		}
	}
	p, err := open(dir, cache, engine, tell)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := p.Create(ctx, owner, id, session.Settings{}); err != nil {
		return err
	}
	r, err := p.Execute(ctx, owner, id, session.Request{Code: programs[language], Language: language, Started: func(x string) {
		fmt.Println("began", x)
		tell("began")
	}})
	if err != nil || r.Exit.Cause != sandbox.Waiting {
		return fmt.Errorf("it %v: %+v, %w", r.Exit.Cause, r, err)
	}
	tell("waits")
	p.allowed = true
	if r, err = p.Execute(ctx, owner, id, session.Request{Continue: r.Execution}); err != nil || r.Stdout != "before\nafter 21\n" {
		return fmt.Errorf("it %v: %+v, %w", r.Exit.Cause, r, err)
	}
	tell("ended")
	return errors.New("it did not stop")
}

// killedAt has another process begin, and kills it at an event.
func killedAt(t *testing.T, dir, engine, language, event string, n int) (execution string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Args = []string{serverRole, dir, sandboxtest.PreparedCache(t), engine, language, event, strconv.Itoa(n)}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if x, ok := strings.CutPrefix(line, "began "); ok {
			execution = x
		}
		if strings.HasPrefix(line, "failed") {
			t.Error(line)
		}
		if line == "stopped" {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	return execution
}

func TestARunWaitsAcrossProcessesThatAreKilled(t *testing.T) {
	waits(t, engines(t))
}

func TestARunInAMachineWaitsAcrossProcessesThatAreKilled(t *testing.T) {
	if raceEnabled { // a sentry's filter of system calls does not let the detector work
		plainly(t)
		return
	}
	b, err := linux.New(linux.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Probe(t.Context())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Require(t, "linux", p.Available && len(p.Runtimes) > 1, p.Reason)
	waits(t, []string{linux.Name})
}

// plainly runs the test in a test binary without the race detector.
func plainly(t *testing.T) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plain")
	build := exec.Command("go", "test", "-c", "-o", binary, "paddock/tests/waiting")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v\n%s", err, out)
	}
	if out, err := exec.Command(binary, "-test.run", "^"+t.Name()+"$", "-test.v").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func waits(t *testing.T, engines []string) {
	for _, engine := range engines {
		for language := range programs {
			t.Run(engine+"/"+language, func(t *testing.T) {
				for _, at := range []struct {
					event string
					n     int
					want  string
				}{
					{"began", 1, "it did not begin to wait"}, {"approve", 2, "it did not begin to wait"}, {"waits", 1, "it waited"},
					{"approve", 3, "it was interrupted"}, {"approve", 4, "it was interrupted"},
					{"effect", 1, "it was interrupted"}, {"made", 1, "it was interrupted"}, {"ended", 1, "it was over"},
				} {
					t.Run(fmt.Sprint(at.event, " ", at.n), func(t *testing.T) {
						t.Parallel()
						dir := filepath.Join(sandboxtest.Memory(t), "state")
						execution := killedAt(t, dir, engine, language, at.event, at.n)
						if got := goesOn(t, dir, engine, language, execution); got != at.want {
							t.Errorf("it is found that %s, want that %s", got, at.want)
						}
					})
				}
			})
		}
	}
}

func engines(t *testing.T) []string {
	if *engine != "" {
		return []string{*engine}
	}
	b, err := wasm.New(wasm.Config{CacheDir: sandboxtest.PreparedCache(t), OwnersDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", p.Available && len(p.Runtimes) == 2, p.Reason)
	if p.Engine == wasm.Native {
		return []string{wasm.Native, wasm.Wazero}
	}
	return []string{wasm.Wazero}
}

// goesOn has this process go on with a run, and tells what it finds. Its effect is there
// at most once.
func goesOn(t *testing.T, dir, engine, language, execution string) string {
	t.Helper()
	p, err := open(dir, sandboxtest.PreparedCache(t), engine, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.backend.Close(); err != nil {
			t.Error(err)
		}
	}()
	show := func(code string) (out, notice string) {
		r, err := p.Execute(t.Context(), owner, id, session.Request{Code: code, Language: language})
		if err != nil {
			t.Fatal(err)
		}
		if r.Exit.Error != nil {
			return r.Exit.Error.Type, r.Notice
		}
		return strings.NewReplacer("\n", "", " ", "", `"`, "", "'", "").Replace(r.Stdout), r.Notice
	}
	p.allowed = true
	before := p.effects()
	r, err := p.Execute(t.Context(), owner, id, session.Request{Continue: execution})
	if err == nil {
		switch {
		case before != 0:
			t.Errorf("before = %v, want 0; it %v and printed %q, error %+v; it had %d effects before, and %d now",
				before, r.Exit.Cause, r.Stdout, r.Exit.Error, before, p.effects())
		case r.Stdout != "before\nafter 21\n":
			t.Errorf("r.Stdout = %q, want %q", r.Stdout, "before\nafter 21\n")
		case r.Exit.Cause != sandbox.Exited:
			t.Errorf("r.Exit.Cause = %v, want %v; it %v and printed %q, error %+v; it had %d effects before, and %d now",
				r.Exit.Cause, sandbox.Exited, r.Exit.Cause, r.Stdout, r.Exit.Error, before, p.effects())
		case p.effects() != 1:
			t.Errorf("p.effects() = %v, want 1; it %v and printed %q, error %+v; it had %d effects before, and %d now",
				p.effects(), r.Exit.Cause, r.Stdout, r.Exit.Error, before, p.effects())
		}
		if out, _ := show(shows[language]); out != "22[one,two]" {
			t.Errorf("it left %q", out)
		}
		return "it waited"
	}
	if fault.KindOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	out, notice := show(shows[language])
	interrupted := strings.Contains(notice, "was interrupted when the server ended")
	switch {
	case out == "22[one,two]" && before == 1 && !interrupted:
		return "it was over"
	case engine == linux.Name && strings.HasSuffix(out, "Error") && before == 1 && !interrupted:
		return "it was over" // and its machine was not saved since
	case out == "1[one]" && interrupted && before <= 1:
		return "it was interrupted"
	case (out == "NameError" || out == "ReferenceError") && before == 0 && !interrupted:
		return "it did not begin to wait"
	}
	t.Fatalf("it left %q with %d effects; the notice is %q", out, before, notice)
	return ""
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// dozing makes a backend whose machines are stopped soon, and given a moment so often.
func dozing(t testing.TB, peek time.Duration) *Backend {
	b := newBackend(t)
	b.rhythm = suspendPolicy{quiet: 100 * time.Millisecond, peek: peek, look: 30 * time.Millisecond}
	return b
}

// stopped tells whether the sentry of a machine is.
func stopped(in *instance) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.machine.box.sentry.cmd.Process.Pid))
	return err == nil && strings.Contains(string(text), ") T ")
}

// stays fails where a machine is stopped within some time in which an idle one is.
func stays(t *testing.T, in *instance, why string) {
	t.Helper()
	for end := time.Now().Add(8 * in.backend.rhythm.quiet); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if stopped(in) {
			t.Fatalf("it is stopped %s", why)
		}
	}
}

func TestAMachineInWhichNothingWorksIsStoppedUntilItIsAskedForSomething(t *testing.T) {
	b := dozing(t, time.Hour)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	spec.Runtime = "javascript"
	node := start(t, b, spec)
	says(t, in, "x = 41")
	says(t, node, "var y = 6")
	eventually(t, "its rest", func() bool { return stopped(in) })
	if got := says(t, in, "x + 1"); got != "42" || stopped(in) {
		t.Errorf("it gave %s", got)
	}
	eventually(t, "its rest again", func() bool { return stopped(in) })
	if u, err := b.Machine(t.Context(), "alice", "one"); err != nil || u.CPU <= 0 || u.Memory <= 0 || !stopped(in) {
		t.Errorf("stopped it uses %+v, %v", u, err)
	}
	spec.Machine = saved(t, b)
	eventually(t, "its rest after it was saved", func() bool { return stopped(in) })
	if err := errors.Join(in.Close(), node.Close()); err != nil || in.machine.client.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	again := start(t, b, spec)
	eventually(t, "the rest of one that was saved", func() bool { return stopped(again) })
	if got := says(t, again, "y * 7"); got != "42" {
		t.Errorf("it gave %s", got)
	}
	eventually(t, "the last rest", func() bool { return stopped(again) }) // and it ends with the backend
}

func TestAMachineInWhichSomethingWorksIsNotStopped(t *testing.T) {
	b := dozing(t, time.Hour)
	in := start(t, b, keptSpec(t, "python"))
	if says(t, in, "import time; time.sleep(1); 'slept'") != "'slept'" {
		t.Error("a program that sleeps")
	}
	says(t, in, "import subprocess; p = subprocess.Popen(['sleep', '1000'])")
	stays(t, in, "beside a process that sleeps")
	says(t, in, "p.kill(); p.wait()\nimport threading\ngo = True\ndef f():\n  while go: time.sleep(0.04)\nthreading.Thread(target=f).start()")
	stays(t, in, "beside a thread that works now and then")
	says(t, in, "go = False; import socket; s = socket.create_server(('127.0.0.1', 8000)); threading.Thread(target=lambda: s.accept()[0].sendall(b'hello')).start()")
	eventually(t, "its rest", func() bool { return stopped(in) })
	c, err := b.Dial(t.Context(), "alice", "one", 8000)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.LimitReader(c, 5)); string(got) != "hello" {
		t.Errorf("who connects is told %q, %v", got, err)
	}
	stays(t, in, "while somebody is connected")
	c.Close()
	eventually(t, "its rest again", func() bool { return stopped(in) })
}

// A thread that sleeps for longer than anybody waits does its work all the same.
func TestAStoppedMachineGoesOnForAMomentFromTimeToTime(t *testing.T) {
	b := dozing(t, 50*time.Millisecond)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	says(t, in, "import threading\nthreading.Timer(0.5, lambda: open('/workspace/done', 'w').write('late')).start()")
	eventually(t, "its rest", func() bool { return stopped(in) })
	done := filepath.Join(spec.Mounts[0].Host, "done")
	eventually(t, "what is due", func() bool { text, _ := os.ReadFile(done); return string(text) == "late" })
	eventually(t, "its rest again", func() bool { return stopped(in) })
	// What it began is seen then.
	says(t, in, "import subprocess\nthreading.Timer(0.5, lambda: subprocess.Popen(['sleep', '1000'])).start()")
	eventually(t, "its work", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		working, err := in.machine.client.Working(ctx)
		return working && err == nil
	})
	stays(t, in, "beside a process that a thread has started")
}

func TestClocksAreRightInAMachineThatWasStopped(t *testing.T) {
	b := dozing(t, time.Hour)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	spec.Runtime = "javascript"
	node := start(t, b, spec)
	says(t, node, "var due = 0; setTimeout(() => { due = Date.now() }, 300).unref()")
	number := func(in sandbox.Instance, code string) float64 {
		f, err := strconv.ParseFloat(says(t, in, code), 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	asked := time.Now()
	before := number(in, "import time; time.monotonic()")
	began := time.Now()
	eventually(t, "its rest", func() bool { return stopped(in) })
	time.Sleep(time.Second) // it is the time that is looked at
	const exact = 0.25
	least := time.Since(began).Seconds() // each question takes its time, on a busy machine some of a second
	took := number(in, "time.monotonic()") - before
	if most := time.Since(asked).Seconds(); took < least-exact || took > most+exact {
		t.Errorf("for it %.3f s have passed, and not %.3f to %.3f", took, least, most)
	}
	now := func() float64 { return float64(time.Now().UnixMilli()) / 1000 }
	for _, it := range []struct {
		in   sandbox.Instance
		code string
		unit float64
	}{{in, "time.time()", 1}, {node, "Date.now()", 1000}} {
		least := now()
		if told, most := number(it.in, it.code)/it.unit, now(); told < least-exact || told > most+exact {
			t.Errorf("it takes %.3f for what lies between %.3f and %.3f", told, least, most)
		}
	}
	if got := says(t, node, "await new Promise(d => setTimeout(d, 1)); due > 0"); got != "true" {
		t.Error("what was due was not done")
	}
	best := math.Inf(1) // of some: others want the processor, too
	for n := 0; n < 20 && best > 0.1+exact; n++ {
		best = min(best, number(in, "import asyncio\nt = time.monotonic()\nawait asyncio.sleep(0.1)\ntime.monotonic() - t"))
	}
	if best < 0.1 || best > 0.1+exact {
		t.Errorf("a tenth of a second took %.3f s", best)
	}
}

// A program that was left waiting for a call holds up nothing.
func TestAMachineWithAProgramThatWaitsIsStopped(t *testing.T) {
	b := dozing(t, 200*time.Millisecond)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	suspend := make(chan struct{})
	exit, err := in.Run(t.Context(), sandbox.Command{
		Code:    "import servers\n@servers.tool('s', 't', {})\ndef it(): ''\nx = it()",
		Suspend: suspend,
		Call: func(ctx context.Context, _ sandbox.Call) []byte {
			close(suspend)
			<-ctx.Done()
			return nil
		},
	})
	if err != nil || exit.Cause != sandbox.Waiting {
		t.Fatalf("it %v, %+v, %v", exit.Cause, exit.Error, err)
	}
	eventually(t, "its rest", func() bool { return stopped(in) })
	eventually(t, "a moment in which it goes on", func() bool { return !stopped(in) })
	eventually(t, "its rest again", func() bool { return stopped(in) })
	exit, err = in.Run(t.Context(), sandbox.Command{
		Continue: &sandbox.Continuation{Calls: exit.Calls, Open: exit.Open},
		Call:     func(context.Context, sandbox.Call) []byte { return []byte(`{"value":41}`) },
	})
	if err != nil || exit.Cause != sandbox.Exited {
		t.Fatalf("it %v, %+v, %v", exit.Cause, exit.Error, err)
	}
	if got := says(t, in, "x + 1"); got != "42" {
		t.Errorf("it gave %s", got)
	}
}

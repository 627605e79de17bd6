//go:build native

package worker

import (
	"math/rand"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// A guest is stopped wherever the interrupt and the signal find it: in its own
// code, in the host's, or on the way between them.
func TestAGuestIsStoppedWhereverItIs(t *testing.T) {
	p, err := bothEngines(t)[0].load(t.Context(), "python", true)
	if err != nil {
		t.Fatal(err)
	}
	in := openedIn(t, p, t.TempDir(), &taken{})
	for n := range 400 {
		in.ends.Control.Begin(time.Duration(rand.Intn(3000)) * time.Microsecond)
		fired := make(chan struct{})
		time.AfterFunc(time.Duration(rand.Intn(3000))*time.Microsecond, func() { defer close(fired); in.ends.Control.Interrupt(sandbox.TimedOut) })
		code := []string{
			"import itertools; any(itertools.repeat(0))",
			"import time\nwhile True:\n  try:\n    while True: time.monotonic()\n  except BaseException: pass",
			"import asyncio\nwhile True:\n  try:\n    await asyncio.sleep(0.00001)\n  except BaseException: pass",
			"while True:\n  try:\n    while True: bytearray(300000)\n  except BaseException: pass",
		}[n%4]
		exit, _, err := in.runCode(code)
		if err != nil {
			t.Fatal(err)
		}
		<-fired
		if exit.Cause != sandbox.TimedOut {
			t.Fatalf("round %d ended as %+v, error %+v", n, exit, exit.Error)
		}
		if exit.State != sandbox.Kept {
			if err := in.rollBack(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A session that was interrupted goes on, wherever the interrupt hit it: here
// mostly between a program, its event loop and the driver.
func TestASessionGoesOnAfterAnInterruptAnywhere(t *testing.T) {
	p, err := bothEngines(t)[0].load(t.Context(), "python", true)
	if err != nil {
		t.Fatal(err)
	}
	in := openedIn(t, p, t.TempDir(), &taken{})
	run := func(code string, after time.Duration) sandbox.Exit {
		t.Helper()
		in.ends.Control.Begin(time.Minute)
		fired := make(chan struct{})
		time.AfterFunc(after, func() { defer close(fired); in.ends.Control.Interrupt(sandbox.TimedOut) })
		exit, _, err := in.runCode(code)
		if err != nil {
			t.Fatal(err)
		}
		if after < time.Minute {
			<-fired
		}
		return exit
	}
	run("import asyncio\nrounds = cleaned = 0", time.Hour)
	for n := range 400 {
		exit := run("try:\n  rounds += 1\n  while True:\n    await asyncio.sleep(0.00002)\nfinally:\n  cleaned += 1", time.Duration(rand.Intn(6000))*time.Microsecond)
		if exit.Cause != sandbox.TimedOut || exit.State != sandbox.Kept {
			t.Fatalf("round %d ended as %+v, error %+v", n, exit, exit.Error)
		}
		exit = run("await asyncio.sleep(0.00001, cleaned <= rounds)", time.Hour)
		if exit.Result != "True" {
			t.Fatalf("after round %d: %+v, error %+v", n, exit, exit.Error)
		}
	}
}

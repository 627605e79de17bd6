package worker

import (
	"runtime"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// A clock goes on with what its own thread does, whoever reads it.
func TestAClockIsOneThreads(t *testing.T) {
	clocks, work, done := make(chan func() time.Duration), make(chan time.Duration), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		clocks <- threadClock()
		for most := range work {
			for from := threadTime(); threadTime()-from < most; {
			}
			done <- struct{}{}
		}
	}()
	clock := <-clocks
	const most = 20 * time.Millisecond
	before := clock()
	work <- most
	<-done
	after := clock()
	if after-before < most {
		t.Errorf("it went on by %v while its thread took %v", after-before, most)
	}
	runtime.LockOSThread()
	for from := threadTime(); threadTime()-from < 10*most; { // another thread does this
	}
	runtime.UnlockOSThread()
	if got := clock() - after; got >= 10*most {
		t.Errorf("it went on by %v while its thread slept", got)
	}
	close(work)
}

// The grace in wall time is longer than any test: what stops a program that swallows its
// interrupt is the processor time that it takes.
func TestAProgramThatSwallowsItsInterruptIsStoppedByItsProcessorTime(t *testing.T) {
	in := openedIn(t, testProgram(t, "python"), t.TempDir(), &taken{})
	const code = "while True:\n  try:\n    while True: pass\n  except BaseException: pass"
	var exit sandbox.Exit
	// One that is interrupted before it can catch that just ends.
	for delay := 20 * time.Millisecond; exit.State != sandbox.Restored && delay < testTime; delay *= 2 {
		in.ends.Control.Begin(24 * time.Hour)
		stop := time.AfterFunc(delay, func() { in.ends.Control.Interrupt(sandbox.TimedOut) })
		var err error
		exit, _, err = in.runCode(code)
		stop.Stop()
		if err != nil {
			t.Fatalf("running it: %v", err)
		}
	}
	if exit.Cause != sandbox.TimedOut {
		t.Errorf("it %v, want it timed out", exit.Cause)
	}
	if exit.State != sandbox.Restored {
		t.Errorf("its state is %v, want %v (error %+v)", exit.State, sandbox.Restored, exit.Error)
	}
	if exit.Usage.CPU < interruptTime {
		t.Errorf("it was stopped after %v of processor time, want %v or more", exit.Usage.CPU, interruptTime)
	}
	if err := in.rollBack(); err != nil {
		t.Fatalf("taking it back: %v", err)
	}
}

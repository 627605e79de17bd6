package helper_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

// does is a kept job whose input says what it does.
var does = helper.Job{
	Name: "does", Doing: "doing it", Memory: 256 << 20, MaxOutput: 1 << 20, Time: time.Minute, Keep: time.Minute,
	Run: func(_ context.Context, in io.Reader, out io.Writer) error {
		text, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		switch string(text) {
		case "process":
			fmt.Fprint(out, os.Getpid())
		case "refuse":
			return fault.New(fault.Invalid, "no").WithHint("do not")
		case "fail":
			return errors.New("host detail")
		case "panic":
			panic("no")
		case "overflow":
			fmt.Fprint(out, depth(len(text)))
		case "hoard":
			var all [][]byte
			for range 1000 {
				all = append(all, bytes.Repeat([]byte{1}, 16<<20))
			}
			fmt.Fprint(out, len(all))
		case "take":
			taken := bytes.Repeat([]byte{1}, 128<<20)
			fmt.Fprint(out, os.Getpid())
			runtime.KeepAlive(taken)
		case "flood":
			_, err = out.Write(make([]byte, 1<<20+1))
			return err
		case "hang":
			for {
				runtime.Gosched()
			}
		}
		return nil
	},
}

func doIt(t *testing.T, r *helper.Runner, job helper.Job, owner, what string) (string, error) {
	t.Helper()
	out, err := r.Run(t.Context(), job, helper.Call{Owner: owner, In: strings.NewReader(what)})
	return string(out), err
}

// processOf gives the process that does an owner's calls.
func processOf(t *testing.T, r *helper.Runner, owner string) string {
	t.Helper()
	process, err := doIt(t, r, does, owner, "process")
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func keeper(t *testing.T) *helper.Runner {
	t.Helper()
	r := runner(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestAKeptProcessIsItsOwners(t *testing.T) {
	r := keeper(t)
	first := processOf(t, r, "ann")
	if got := processOf(t, r, "bob"); got == first {
		t.Errorf("bob's call was done by ann's process, %s", got)
	}
	if got := processOf(t, r, "ann"); got != first {
		t.Errorf("ann's second call was done by the process %s, want the one of the first, %s", got, first)
	}
}

// What a call does costs that call alone: the next one of its owner is done.
func TestWhatEndsAKeptProcessCostsOneCall(t *testing.T) {
	r := keeper(t)
	for _, c := range []struct {
		what  string
		time  time.Duration
		want  fault.Kind
		text  string
		ended bool
	}{
		{"refuse", 0, fault.Invalid, "no", false},
		{"fail", 0, fault.Internal, "doing it did not work", false},
		{"panic", 0, fault.Unsupported, "doing it needed more memory than 256 MiB, or crashed", true},
		{"overflow", 0, fault.Unsupported, "doing it needed more memory than 256 MiB, or crashed", true},
		{"hoard", 0, fault.Unsupported, "doing it needed more memory than 256 MiB, or crashed", true},
		{"flood", 0, fault.Exhausted, "doing it gave more than 1 MiB", true},
		{"hang", 300 * time.Millisecond, fault.Exhausted, "doing it took longer than 300ms", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := processOf(t, r, "ann")
			job := does
			if c.time > 0 {
				job.Time = c.time
			}
			_, err := doIt(t, r, job, "ann", c.what)
			f := fault.Of(err)
			if f == nil {
				t.Fatal("got no error")
			}
			if f.Kind != c.want {
				t.Errorf("got a fault of kind %s, want %s", f.Kind, c.want)
			}
			if f.Message != c.text {
				t.Errorf("got %q, want %q (%v)", f.Message, c.text, fault.CauseOf(err))
			}
			if got := helper.Ended(err); got != c.ended {
				t.Errorf("Ended(%v) is %v, want %v", err, got, c.ended)
			}
			if got, want := helper.TimedOut(err), c.what == "hang"; got != want {
				t.Errorf("TimedOut(%v) is %v, want %v", err, got, want)
			}
			if after := processOf(t, r, "ann"); (after != before) != c.ended {
				t.Errorf("the process was %s and is %s; it should have ended: %v", before, after, c.ended)
			}
		})
	}
}

// A process that has taken much memory does not wait for a call with it.
func TestAKeptProcessGivesMemoryBack(t *testing.T) {
	r := keeper(t)
	large, err := doIt(t, r, does, "ann", "take")
	if err != nil {
		t.Fatal(err)
	}
	if got := processOf(t, r, "ann"); got == large {
		t.Errorf("the process %s goes on with its memory", got)
	}
}

func TestAKeptProcessEndsWithItsTime(t *testing.T) {
	r := keeper(t)
	job := does
	job.Keep = time.Millisecond
	first, err := doIt(t, r, job, "ann", "process")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if got := processOf(t, r, "ann"); got == first {
		t.Errorf("the process %s still waits", got)
	}
}

func TestACancelledCallEndsItsProcess(t *testing.T) {
	r := keeper(t)
	before := processOf(t, r, "ann")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, context.Canceled)
	defer cancel()
	if _, err := r.Run(ctx, does, helper.Call{Owner: "ann", In: strings.NewReader("hang")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got := processOf(t, r, "ann"); got == before {
		t.Errorf("the process %s still works", got)
	}
}

func TestCloseEndsKeptProcesses(t *testing.T) {
	r := runner(t)
	processOf(t, r, "ann")
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	first := processOf(t, r, "ann") // calls are still done
	if got := processOf(t, r, "ann"); got == first {
		t.Errorf("the process %s was kept after Close", got)
	}
	if err := (*helper.Runner)(nil).Close(); err != nil {
		t.Error(err)
	}
}

func TestAKeptJobReadsNoFolders(t *testing.T) {
	if out, err := keeper(t).Run(t.Context(), does, helper.Call{Readable: []string{t.TempDir()}, In: strings.NewReader("process")}); err == nil {
		t.Errorf("got %q, want an error", out)
	}
}

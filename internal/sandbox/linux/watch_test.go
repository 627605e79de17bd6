//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

// shell gives an instance that runs bash, or skips the test.
func shell(t testing.TB, b *Backend, spec sandbox.Spec) *instance {
	t.Helper()
	spec.Owner, spec.Runtime = "alice", "bash"
	return start(t, b, spec)
}

func runs(t testing.TB, in *instance, code string) sandbox.Exit {
	t.Helper()
	exit, err := in.Run(t.Context(), sandbox.Command{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// One file is bounded by the agent; this is about many.
func TestFilesThatGrowTogetherOverTheLimitStopTheProgram(t *testing.T) {
	b := newBackend(t)
	dir := folderFor(t, "work")
	const limit = 8 << 20
	in := shell(t, b, sandbox.Spec{Mounts: []sandbox.Mount{{Guest: "/mine", Host: dir, DiskBytes: limit}}, Dir: "/mine"})
	exit := runs(t, in, "for i in $(seq 1000); do head -c 1000000 /dev/zero > f$i; done")
	if exit.Cause != sandbox.OutOfSpace || exit.Code == 0 || exit.Error == nil {
		t.Errorf("it ended as %+v", exit)
	}
	if n := mustSize(t, dir); n < limit || n > 16*limit {
		t.Errorf("the files have %d bytes", n)
	}
	// Over the limit a program that writes nothing more goes on, and one that removes.
	if exit := runs(t, in, "cat f1 > /dev/null; rm f*; ls | wc -l"); exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("it ended as %+v", exit)
	}
	if exit := runs(t, in, "head -c 1000000 /dev/zero > f"); exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("with room it ended as %+v", exit)
	}
}

// A look at the folders takes time: a run that begins in the middle of it is not stopped
// for what another one wrote.
func TestARunIsNotStoppedForTheOneBefore(t *testing.T) {
	w := &watch{
		runs:    map[int]context.CancelCauseFunc{},
		machine: &machine{box: &box{sentry: &part{ended: make(chan struct{})}}},
	}
	before, done := w.run(t.Context())
	defer done()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	later, done := w.run(t.Context())
	defer done()
	w.cancel(overrun{cause: sandbox.OutOfSpace, what: "too much"}, last)
	if before.Err() == nil {
		t.Error("the run that was looked at goes on")
	}
	if err := later.Err(); err != nil {
		t.Errorf("a run that began later is stopped: %v", err)
	}
}

func TestProgramsThatTakeTooMuchMemoryTogetherEndTheMachine(t *testing.T) {
	b := newBackend(t)
	in := shell(t, b, sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20}})
	// None of them has much: no limit of a process finds them.
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "for i in $(seq 60); do sh -c 'x=$(head -c 4000000 /dev/zero | tr \"\\000\" x); sleep 1000' & done; wait"})
	if err != nil || exit.Cause != sandbox.OutOfMemory || exit.State != sandbox.Fresh || exit.Error == nil {
		t.Errorf("it ended as %+v, %v", exit, err)
	}
	<-in.Done()
	again := shell(t, b, sandbox.Spec{})
	if exit := runs(t, again, "true"); exit.Code != 0 {
		t.Errorf("the next one does not work: %+v", exit)
	}
}

func TestAMachineTellsWhatItUses(t *testing.T) {
	b := newBackend(t)
	if _, err := b.Machine(t.Context(), "alice", "one"); err == nil {
		t.Error("one that is not there does")
	}
	in := shell(t, b, sandbox.Spec{Box: "one"})
	before, err := b.Machine(t.Context(), "alice", "one")
	if err != nil || before.CPU <= 0 || before.Memory <= 0 || before.Booted.IsZero() {
		t.Errorf("%+v, %v", before, err)
	}
	runs(t, in, "head -c 20000000 /dev/zero > /dev/shm/f; for i in $(seq 100000); do :; done")
	after, err := b.Machine(t.Context(), "alice", "one")
	if err != nil || after.CPU <= before.CPU || after.Memory < before.Memory+5_000_000 {
		t.Errorf("%+v became %+v, %v", before, after, err)
	}
}

// What one box has, another does not see, whoever has it.
func TestBoxesShareNothing(t *testing.T) {
	b := newBackend(t)
	one, other := shell(t, b, sandbox.Spec{}), shell(t, b, sandbox.Spec{})
	runs(t, one, "echo here > /dev/shm/f; sleep 1000 & exec 7<>/dev/tcp/127.0.0.1/1 || true")
	for _, code := range []string{"cat /dev/shm/f", "pgrep sleep || grep -l sleep /proc/[0-9]*/comm"} {
		if exit := runs(t, other, code); exit.Code == 0 {
			t.Errorf("%q works in the other box: %+v", code, exit)
		}
	}
}

// The overlay's file is on the host's disk: it must not fill it.
func TestWhatIsWrittenUponTheRootIsBounded(t *testing.T) {
	p := newPlan(t, "/bin/sh", "-c", "head -c 100000000 /dev/zero > /tmp/f; ls -s /tmp/f; head -c 100000000 /dev/zero > /var/tmp/f; ls -s /var/tmp/f")
	p.overlayBytes = 1 << 20
	got := output(t, bootBox(t, newLauncher(t), p))
	if strings.Count(got, "No space left") != 2 {
		t.Errorf("it printed %q", got)
	}
}

func mustSize(t testing.TB, dir string) int64 {
	t.Helper()
	n, err := sizeOf(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

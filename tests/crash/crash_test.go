package crash

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

var (
	rounds = flag.Int("rounds", 0, "how many `ROUNDS` TestKilledAtAnyMoment plays; 0: 200, 20 with -short")
	seed   = flag.Uint64("seed", 0, "the `SEED` of what it does; 0: a new one")
)

// Attacks 62 and 63: processes are killed at any moment of whatever they do, and
// the next one is asked for all that was acknowledged.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t, "linux", runtime.GOOS == "linux", "workers are found in /proc")
	n, s := *rounds, *seed
	if n == 0 {
		if n = 200; testing.Short() {
			n = 20
		}
	}
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d", s)
	// Half of the rounds on a real disk, whose syncs take their time, and half in memory.
	for k, state := range []func(testing.TB) string{testing.TB.TempDir, sandboxtest.Memory} {
		t.Run([]string{"on disk", "in memory"}[k], func(t *testing.T) {
			t.Parallel()
			playRounds(t, placeAt(t, state(t), "[sessions]\nmax_checkpoints = 40\n"), (n+k)/2, s+uint64(k))
		})
	}
}

// playRounds kills processes in one state folder so often.
func playRounds(t *testing.T, p *place, n int, s uint64) {
	w := newScenario(p)
	rng := newRand(s, 0)
	for k := range 3 { // a call never makes a session whose name begins with s-: what was destroyed stays so
		w.actors = append(w.actors, &actor{w: w, name: fmt.Sprintf("s-actor%d", k), rng: newRand(s, uint64(k)+1)})
	}
	began := time.Now()
	for k := range n {
		if w.failed() {
			t.Fatalf("given up after round %d", k)
		}
		w.round(rng, fmt.Sprintf("round %d of seed %d", k, s))
	}
	w.finish()
	t.Logf("%d rounds in %v: %s", n, time.Since(began).Round(time.Second), w.summary())
}

// round starts a process, or two, has the actors use them, and ends them in some
// way.
func (w *scenario) round(rng *rand.Rand, name string) {
	w.say(name)
	w.disturb(rng)
	w.tolerant.Store(false)
	p := w.start()
	processes := []*process{p, p, p} // one for each actor
	if rng.IntN(3) == 0 {
		processes[2] = w.start()
		name += ", with two processes"
	}
	var players, others sync.WaitGroup
	if rng.IntN(4) == 0 {
		after, life := time.Duration(rng.IntN(300))*time.Millisecond, w.life(rng)
		others.Go(func() { w.collect(after, life) })
		name += ", with a collection"
	}
	n := rng.IntN(100)
	w.say(name + ", " + ending(n))
	stop := make(chan struct{})
	for k, a := range w.actors {
		players.Go(func() { a.play(processes[k], stop) })
	}
	if n >= quietly {
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		close(stop)
		players.Wait() // all is acknowledged
		p.hangUp()
		processes[2].hangUp()
		w.count("end")
	} else {
		w.kill(p, rng, n)
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		processes[2].kill()
	}
	players.Wait()
	others.Wait()
	w.settle()
}

// How a round ends, as parts of a hundred.
const (
	duringChange = 50
	workersFirst = 80
	quietly      = 92
)

// kill kills a process in one of three ways.
func (w *scenario) kill(p *process, rng *rand.Rand, way int) {
	switch {
	case way < duringChange:
		time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
		w.count("kill")
	case way < workersFirst:
		after, more := 1+rng.IntN(12), time.Duration(rng.IntN(5000))*time.Microsecond
		w.await(p, after)
		time.Sleep(more)
		w.count("aimed kill")
	default:
		w.killWorkers(p, rng)
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	}
	p.kill()
}

// disturb does what may happen between two processes.
func (w *scenario) disturb(rng *rand.Rand) {
	if rng.IntN(10) == 0 { // the index may be lost at any time
		for _, name := range []string{"index.db", "index.db-wal", "index.db-shm"} {
			if err := os.Remove(filepath.Join(w.state, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				w.fail("%v", err)
			}
		}
		w.count("lost index")
	}
	if rng.IntN(8) == 0 {
		w.carry(rng)
	}
}

// ending says how a round ends.
func ending(n int) string {
	switch {
	case n < duringChange:
		return "killed at any time"
	case n < workersFirst:
		return "killed during a change"
	case n < quietly:
		return "workers killed"
	}
	return "not killed"
}

// await waits until so many changes were sent, or the process has ended.
func (w *scenario) await(p *process, calls int) {
	late := time.After(mostWait)
	for range calls {
		select {
		case <-p.sent:
		case <-p.dead:
			return
		case <-late:
			w.fail("nothing happens\n%s", last(p.said()))
			return
		}
	}
}

// killWorkers kills the processes that run programs, now and then.
func (w *scenario) killWorkers(p *process, rng *rand.Rand) {
	w.tolerant.Store(true)
	for range 1 + rng.IntN(3) {
		time.Sleep(time.Duration(100+rng.IntN(150)) * time.Millisecond)
		for _, pid := range children(p.cmd.Process.Pid) {
			if worker, err := os.FindProcess(pid); err == nil && worker.Kill() == nil {
				w.count("kill of a worker")
			}
		}
	}
}

// collect collects beside a process that works, and is killed when it takes
// longer than life.
func (w *scenario) collect(after, life time.Duration) {
	time.Sleep(after)
	if w.ended(w.command("session", "gc"), life) {
		w.count("gc")
	} else {
		w.count("killed gc")
	}
}

// ended runs a command for so long, and tells whether it came to its end.
func (w *scenario) ended(cmd *exec.Cmd, life time.Duration) bool {
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		w.fail("%v", err)
		return false
	}
	killed := time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !killed.Stop() && err != nil {
		return false
	}
	if err != nil {
		w.fail("%v: %v: %s", cmd.Args[1:], err, said.String())
	}
	return err == nil
}

// carry exports a session and imports it under another name; either may be
// killed.
func (w *scenario) carry(rng *rand.Rand) {
	a := w.actors[rng.IntN(len(w.actors))]
	for _, s := range a.sessions {
		if s.known() == nil || len(a.sessions) > mostSessions {
			continue
		}
		file := filepath.Join(w.t.TempDir(), "archive")
		if !w.ended(w.command("session", "export", s.id, file), w.life(rng)) {
			w.count("killed export")
			if _, err := os.Lstat(file); err != nil {
				return
			} // what is there is whole
		}
		made := newSession(fmt.Sprintf("%s-%d", a.name, w.op()), s.known().clone())
		a.sessions = append(a.sessions, made)
		w.count("export")
		if !w.ended(w.command("session", "import", file, "--id", made.id), w.life(rng)) {
			made.may = append(made.may, nil)
			w.count("killed import")
			return
		}
		w.count("import")
		return
	}
}

// life is how long a command lives: shorter than it takes, at times.
func (w *scenario) life(rng *rand.Rand) time.Duration {
	if rng.IntN(2) == 0 {
		return mostWait
	}
	return time.Duration(rng.IntN(200)) * time.Millisecond
}

// finish looks at every session and every checkpoint that is known once more,
// and destroys all: then nothing may be left.
func (w *scenario) finish() {
	w.say("in the end")
	w.tolerant.Store(false)
	p := w.start()
	<-p.ready
	for _, a := range w.actors {
		for _, s := range append([]*session(nil), a.sessions...) {
			a.resolve(p, s)
			if s.known() == nil {
				continue
			}
			for label, target := range s.labels {
				if _, ok := a.try(p, s, become(target), "restore_session", map[string]any{"session_id": s.id, "checkpoint": label}); ok {
					a.resolve(p, s)
				}
			}
			a.destroy(p, s)
		}
		a.haunt(p)
	}
	p.hangUp()
	w.settle()
	if _, err := w.do("session", "gc"); err != nil {
		w.fail("%v", err)
	}
	// A folder that a session was about to be made in stays a while.
	w.without("session.json", "owners/local/*")
	w.without("*", "checkpoints/local/*")
	w.without("*", "blobs/local/??")
	w.without("*", "blobs/local/new")
}

// without sees that there are no such files in some folders of the state.
func (w *scenario) without(names, folders string) {
	left, err := filepath.Glob(filepath.Join(w.state, folders, names))
	if err != nil || len(left) > 0 {
		w.fail("%v is left (%v)", left, err)
	}
}

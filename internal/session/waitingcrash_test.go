package session_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/blob/blobtest"
	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/store"
)

var waitingStride = flag.Int("waiting.stride", 4, "each how many operations of the disk a process dies that has a run wait and go on")

var errDied = errors.New("the process has died")

// A process that dies at any operation on the disk, while a run is suspended and goes
// on, leaves one that waits, or one that has not begun, or one that is over: what the
// program does after it was allowed to is never done twice.
func TestAProcessMayDieWheneverARunWaitsAndGoesOn(t *testing.T) {
	const code = "x = 1\nwrite('f', 'one')\nprint('before')\nmany = gather('approve', 2)\nprint('after', many)\ncall('effect', '')\nx = x + many\nwrite('f', 'two')"
	outcomes := map[string]int{}
	for n := 0; ; n += *waitingStride {
		reached := false
		t.Run(fmt.Sprintf("at operation %d", n), func(t *testing.T) {
			d := diesAt(t, n, code)
			reached = d.reached()
			outcomes[d.goesOnElsewhere()]++
		})
		if !reached || t.Failed() {
			break
		}
	}
	t.Logf("what was found: %v", outcomes)
	for _, what := range []string{"as it was before", "it waited", "it was interrupted", "it was over"} {
		if outcomes[what] == 0 && !t.Failed() {
			t.Errorf("none was found of which %s: %v", what, outcomes)
		}
	}
}

// death is a session whose process died.
type death struct {
	t         *testing.T
	p         *people
	dir       string
	id        session.ID
	execution string
	result    session.Result // the last that was given
	err       error

	mu  sync.Mutex // guards what follows
	hit bool
}

func (d *death) reached() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hit
}

// diesAt runs a program, and goes on with it, in a process that dies at the operation n.
func diesAt(t *testing.T, n int, code string) *death {
	d := &death{t: t, p: newPeople(), dir: t.TempDir(), execution: "x-none"}
	disk, err := blobtest.New(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	config := d.p.config()
	config.Dir, config.Files = d.dir, disk
	m := manager(t, config, sandboxtest.FakeConfig{})
	d.id = create(t, m, alice, "")
	execute(t, m, d.id, "x = 0")
	from := blobtest.From(disk.Ops()+n, errDied)
	disk.SetFault(func(op blobtest.Op) error {
		err := from(op)
		d.mu.Lock()
		first := err != nil && !d.hit
		d.hit = d.hit || err != nil
		d.mu.Unlock()
		if first {
			go d.allow() // what it cannot be suspended for does not wait for ever
		}
		return err
	})
	req := session.Request{Code: code, Language: "python", Started: func(x string) { d.execution = x }}
	d.result, d.err = m.Execute(t.Context(), alice, d.id, req)
	if d.err == nil && d.result.Exit.Cause == sandbox.Waiting {
		d.allow()
		d.result, d.err = goOn(m, d.id, d.execution)
	}
	d.dir = copyRunning(t, d.dir)
	disk.SetFault(nil)
	return d
}

// copyRunning gives the state folder as it is when its process is killed now, but for
// the index, which is written all the time and can be lost.
func copyRunning(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state")
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(filepath.Base(path), "index.db") {
			return nil
		}
		if err != nil || e.Type()&fs.ModeSocket != 0 {
			return err
		}
		there := to + strings.TrimPrefix(path, dir)
		if e.IsDir() {
			return os.MkdirAll(there, 0o700)
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(there, data, 0o600)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return to
}

func (d *death) allow() {
	d.p.decide(1, "10")
	d.p.decide(2, "20")
}

// goesOnElsewhere has another process go on, and gives what it found.
func (d *death) goesOnElsewhere() string {
	t := d.t
	config := d.p.config()
	config.Dir = d.dir
	m := manager(t, config, sandboxtest.FakeConfig{})
	done := d.p.effects
	if done > 1 {
		t.Fatalf("it was done %d times", done)
	}
	r, err := goOn(m, d.id, d.execution)
	switch {
	case err == nil:
		expect.Equal(t, "it went on: done", done, 0)
		expect.Equal(t, "it went on: r.Exit.Cause", r.Exit.Cause, sandbox.Exited)
		expect.Equal(t, "it went on: r.Stdout", r.Stdout, "before\nafter 30\n")
		expect.Equal(t, "it went on: d.p.effects", d.p.effects, 1)
		prints(t, m, d.id, "print(x, read('f'))", "31 two")
		return "it waited"
	case fault.KindOf(err) != fault.NotFound:
		t.Fatalf("going on elsewhere: %v", err)
	}
	last := execute(t, m, d.id, "1")
	now := strings.TrimSpace(execute(t, m, d.id, "print(x)").Stdout)
	interrupted := strings.Contains(last.Notice, "interrupted")
	switch {
	case now == "31" && done == 1 && !interrupted:
		return "it was over"
	case now == "1" && interrupted:
		return "it was interrupted"
	case now == "0" && !interrupted && (d.err != nil || d.result.Exit.Cause == sandbox.Cancelled || strings.Contains(d.result.Notice, "could not be kept")):
		return "as it was before"
	}
	t.Fatalf("x is %s, it was done %d times; the notice was %q; it was answered with %+v, %v", now, done, last.Notice, d.result, d.err)
	return ""
}

// A process that is killed as soon as a run waits may have told neither the index nor the
// session's record of it. The run is found all the same, and goes on.
func TestARunThatWaitsIsFoundWhereNothingButItsCheckpointSaysSo(t *testing.T) {
	for name, behind := range map[string]bool{"the index is behind": false, "the session's record, too": true} {
		t.Run(name, func(t *testing.T) {
			p, dir := newPeople(), t.TempDir()
			config := p.config()
			config.Dir = dir
			m := manager(t, config, sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			index := store.Open(filepath.Join(dir, "index.db"), nil)
			defer index.Close()
			for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				if all, err := index.Sessions(string(alice)); err == nil && len(all) == 1 {
					break
				}
				if time.Now().After(late) {
					t.Fatal("the index does not know the session")
				}
			}
			files := []string{filepath.Join(dir, "index.db"), filepath.Join(dir, "index.db-wal")}
			if behind {
				files = append(files, recordOf(t, dir, id))
			}
			earlier := map[string][]byte{}
			for _, path := range files {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				earlier[strings.TrimPrefix(path, dir)] = data
			}
			r := waiting(t, m, id, asksTwo, 2)
			config.Dir = copyRunning(t, dir)
			for name, data := range earlier {
				if err := os.WriteFile(config.Dir+name, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			next := manager(t, config, sandboxtest.FakeConfig{})
			if all, err := next.WaitingRuns(alice); err != nil {
				t.Error(err)
			} else if len(all) != 1 {
				t.Errorf("len(all): got %d, want 1: %v", len(all), all)
			} else {
				expect.Equal(t, "all[0].Execution", all[0].Execution, r.Execution)
				expect.Equal(t, "all[0].Session", all[0].Session, id)
			}
			if all, err := next.List(alice); err != nil {
				t.Error(err)
			} else if len(all) != 1 {
				t.Errorf("len(all): got %d, want 1: %v", len(all), all)
			} else if all[0].State != session.Waiting {
				t.Errorf("all[0].State: got %v, want %v", all[0].State, session.Waiting)
			}
			p.decide(1, "10")
			p.decide(2, "20")
			ends(t, next, id, r.Execution)
		})
	}
}

// recordOf is the file with a session's record.
func recordOf(t *testing.T, dir string, id session.ID) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "owners", "*", string(id), "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("len(found): got %d, want 1: %v", len(found), found)
	}
	return found[0]
}

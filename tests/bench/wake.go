package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"paddock/internal/session"
)

// usual is what a session usually holds: some modules, some functions, a few MiB
// of rows, and a file.
const usual = `import csv, json, re, random, statistics, collections, datetime
rows = [{"id": i, "name": f"item {i}", "price": random.random() * 100, "tags": [f"t{i % 7}", f"u{i % 11}"]} for i in range(8000)]
def mean(key): return statistics.mean(r[key] for r in rows)
by_tag = collections.defaultdict(list)
for r in rows: by_tag[r["tags"][0]].append(r)
text = json.dumps(rows[:2000])
with open("rows.json", "w") as f: f.write(text)
mean("price")`

const usualNext = "len(rows)"

// fresh measures the first result of a session that is new.
func (p *place) fresh(ctx context.Context, n int) (sample, error) {
	var id session.ID
	return measure(n, func() (err error) {
		id, err = p.open(ctx, session.Settings{Language: "python"}, "1")
		return err
	}, func() error { return p.Destroy(ctx, session.Local, id) })
}

// benchFork is the time from a session to the first result of its fork.
func benchFork(ctx context.Context, p *place, t *table, n int) error {
	n = max(n/4, 5)
	base, err := p.fresh(ctx, n)
	if err != nil {
		return err
	}
	id, err := p.open(ctx, session.Settings{Language: "python"}, usual)
	if err != nil {
		return err
	}
	var fork session.ID
	forking := func() error {
		made, err := p.Fork(ctx, session.Local, id, "", 1)
		if err != nil {
			return err
		}
		fork = made[0].ID
		_, err = p.run(ctx, fork, "python", usualNext)
		return err
	}
	end := func() error { return p.Destroy(ctx, session.Local, fork) }
	asleep := func() error { return p.Sleep(session.Local, id) }
	live, err := measure(n, forking, end)
	if err != nil {
		return err
	}
	if err := asleep(); err != nil {
		return err
	}
	sleeping, err := measure(n, forking, end, asleep)
	if err != nil {
		return err
	}
	t.add("fork of a live session to its first result (p50)", live.at(0.5), base.at(0.5), "a new session's first result (p50)", "<= 10 ms")
	t.add("fork of a sleeping session to its first result (p50)", sleeping.at(0.5), base.at(0.5), "a new session's first result (p50)", "")
	return p.Destroy(ctx, session.Local, id)
}

// benchWake is the time from a session on disk to its next result.
func benchWake(ctx context.Context, p *place, t *table, n int) error {
	n = max(n/4, 5)
	base, err := p.fresh(ctx, n)
	if err != nil {
		return err
	}
	id, err := p.open(ctx, session.Settings{Language: "python"}, usual)
	if err != nil {
		return err
	}
	asleep := func() error { return p.Sleep(session.Local, id) }
	if err := asleep(); err != nil {
		return err
	}
	woken, err := measure(n, func() error { _, err := p.run(ctx, id, "python", usualNext); return err }, asleep)
	if err != nil {
		return err
	}
	t.add("wake from disk to a result (p50)", woken.at(0.5), base.at(0.5), "a new session's first result (p50)", "<= 50 ms")
	return p.Destroy(ctx, session.Local, id)
}

// stored is how many sessions a server has on disk in benchWakeAmongMany.
const stored = 10_000

// benchWakeAmongMany is a small session's wake in a server that has many on its
// disk, beside one in a server that has only that.
func benchWakeAmongMany(ctx context.Context, cache, dir string, t *table, n int) error {
	p, err := openPlace(cache, filepath.Join(dir, "stored"), func(c *session.Config) {
		c.MaxPerOwner, c.MaxStored = stored+n, stored+n
	})
	if err != nil {
		return err
	}
	defer p.close()
	id, err := p.open(ctx, session.Settings{Language: "python"}, "x = 1")
	if err != nil {
		return err
	}
	asleep := func() error { return p.Sleep(session.Local, id) }
	wake := func() (sample, error) {
		if err := asleep(); err != nil {
			return nil, err
		}
		return measure(n, func() error { _, err := p.run(ctx, id, "python", "x += 1"); return err }, asleep)
	}
	alone, err := wake()
	if err != nil {
		return err
	}
	for made := 1; made < stored; {
		forks, err := p.Fork(ctx, session.Local, id, "", min(16, stored-made))
		if err != nil {
			return err
		}
		for _, f := range forks {
			if err := p.Sleep(session.Local, f.ID); err != nil {
				return err
			}
		}
		made += len(forks)
	}
	among, err := wake()
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("wake from disk among %d sessions (p50)", stored), among.at(0.5), alone.at(0.5), "the same in a server that has one (p50)", "<= 8 ms")
	return nil
}

// benchProcess is the time from no process to a sleeping session's next result.
func benchProcess(ctx context.Context, cache, binary, dir string, t *table, n int) error {
	n = max(n/10, 5)
	dir = filepath.Join(dir, "process")
	p, err := openPlace(cache, dir, nil)
	if err != nil {
		return err
	}
	id, err := p.open(ctx, session.Settings{Language: "python"}, usual)
	if e := p.close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	started := func(want string, args ...string) func() error {
		return func() error {
			var complaint bytes.Buffer
			cmd := exec.CommandContext(ctx, binary, append([]string{"run", "--state-dir", dir}, args...)...)
			cmd.Stderr = &complaint
			out, err := cmd.Output()
			if err == nil && string(out) != want {
				err = fmt.Errorf("it printed %q", out)
			}
			if err != nil {
				err = fmt.Errorf("%w: %s", err, complaint.Bytes())
			}
			return err
		}
	}
	woken, err := measure(n, started("8000\n", "--session", string(id), "-c", "print(len(rows))"))
	if err != nil {
		return err
	}
	base, err := measure(n, started("1\n", "-c", "print(1)"))
	if err != nil {
		return err
	}
	t.add("wake from disk in a new process, whole (p50)", woken.at(0.5), base.at(0.5), "paddock run, not kept, whole (p50)", "<= 300 ms")
	return nil
}

// benchSleepers is what sessions take that sleep: of the disk, and of the server.
func benchSleepers(ctx context.Context, cache, dir string, t *table, _ int) error {
	const sleepers = 200
	p, err := openPlace(cache, filepath.Join(dir, "sleepers"), nil)
	if err != nil {
		return err
	}
	defer p.close()
	one := func(code string) error {
		id, err := p.open(ctx, session.Settings{Language: "python"}, code)
		if err == nil {
			err = p.Sleep(session.Local, id)
		}
		return err
	}
	for _, kind := range []struct{ name, code string }{{"x = 1", "x = 1"}, {"a few MiB", usual}} {
		for range 100 { // what is made once, and what is kept for the next, is not a session's
			if err := one(kind.code); err != nil {
				return err
			}
		}
		disk, heap, worker, err := p.uses()
		if err != nil {
			return err
		}
		for range sleepers {
			if err := one(kind.code); err != nil {
				return err
			}
		}
		diskNow, heapNow, workerNow, err := p.uses()
		if err != nil {
			return err
		}
		each := float64(diskNow-disk) / sleepers
		t.rows = append(t.rows, []string{
			t.engine, fmt.Sprintf("a sleeping session (%s) on disk, mean of %d", kind.name, sleepers), kib(each), "sessions per GiB", fmt.Sprintf("%.0f", (1<<30)/each), "", "",
		}, []string{
			t.engine, fmt.Sprintf("a sleeping session (%s) in memory, mean of %d", kind.name, sleepers), kib(float64(heapNow-heap)/sleepers) + " of the server's", "of its worker's",
			kib(float64(workerNow-worker) / sleepers), "", "~ 0",
		})
	}
	return nil
}

func kib(bytes float64) string { return fmt.Sprintf("%.1f KiB", bytes/1024) }

// uses is what the place takes of the disk, of this process's heap, and of its
// workers' memory.
func (p *place) uses() (disk, heap, workers int64, err error) {
	if disk, err = onDisk(p.dir); err != nil {
		return 0, 0, 0, err
	}
	runtime.GC()
	runtime.GC() // what has a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0, 0, 0, err
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, pid := range strings.Fields(string(children)) {
			status, err := os.ReadFile("/proc/" + pid + "/status")
			if err != nil {
				return 0, 0, 0, err
			}
			for line := range strings.Lines(string(status)) {
				if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
					n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
					if err != nil {
						return 0, 0, 0, err
					}
					workers += n << 10
				}
			}
		}
	}
	return disk, int64(m.HeapAlloc), workers, nil
}

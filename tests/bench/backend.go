package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm"
)

var languages = []struct{ runtime, print, host, flag string }{
	{"python", "print(1)", "python3", "-c"},
	{"javascript", "console.log(1)", "node", "-e"},
}

// once starts an interpreter, runs code in it, and closes it.
func once(ctx context.Context, b *wasm.Backend, runtime, code string) (string, error) {
	return onceIn(ctx, b, sandbox.Spec{Owner: "bench", Runtime: runtime}, code)
}

func onceIn(ctx context.Context, b *wasm.Backend, spec sandbox.Spec, code string) (string, error) {
	in, err := b.Start(ctx, spec)
	if err != nil {
		return "", err
	}
	defer in.Close()
	var out bytes.Buffer
	exit, err := in.Run(ctx, sandbox.Command{Code: code, Stdout: &out})
	if err == nil && exit.Error != nil {
		err = fmt.Errorf("%s: %s", exit.Error.Type, exit.Error.Message)
	}
	return out.String(), err
}

// benchStart is the time from no worker to the result of print(1): each time
// for another owner.
func benchStart(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	for _, l := range languages {
		owner := 0
		s, err := measure(n/5, func() error {
			owner++
			in, err := b.Start(ctx, sandbox.Spec{Owner: fmt.Sprint("start", l.runtime, owner), Runtime: l.runtime})
			if err != nil {
				return err
			}
			defer in.Close()
			_, err = in.Run(ctx, sandbox.Command{Code: l.print})
			return err
		})
		if err != nil {
			return err
		}
		base, err := measure(n/10, hostPrints(l.host, l.flag, l.print))
		if err != nil {
			return err
		}
		t.add("a worker's start to "+l.runtime+"'s first print (p50)", s.at(0.5), base.at(0.5), "new "+l.host+" process (p50)", "<= 10 ms")
	}
	return nil
}

// benchFresh is the time from nothing to the result of print(1).
func benchFresh(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	for _, l := range languages {
		fresh := func() error {
			out, err := once(ctx, b, l.runtime, l.print)
			if err == nil && out != "1\n" {
				err = fmt.Errorf("it printed %q", out)
			}
			return err
		}
		if err := fresh(); err != nil { // starts the worker
			return err
		}
		s, err := measure(n, fresh)
		if err != nil {
			return err
		}
		base, err := measure(n/10, hostPrints(l.host, l.flag, l.print))
		if err != nil {
			return err
		}
		t.add("fresh "+l.runtime+", print, close (p50)", s.at(0.5), base.at(0.5), "new "+l.host+" process (p50)", "<= 1 ms")
		t.add("fresh "+l.runtime+", print, close (p99)", s.at(0.99), base.at(0.99), "new "+l.host+" process (p99)", "")
	}
	return nil
}

// crowd calls f from 100 goroutines at once and gives the time of each and of
// all together.
func crowd(f func() error) (sample, time.Duration, error) {
	const size = 100
	s, errs := make(sample, size), make([]error, size)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range size {
		all.Go(func() {
			errs[i] = f()
			s[i] = time.Since(begin)
		})
	}
	all.Wait()
	wall := time.Since(begin)
	slices.Sort(s)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return s, wall, nil
}

func benchCrowd(ctx context.Context, b *wasm.Backend, t *table, _ int) error {
	s, wall, err := crowd(func() error { _, err := once(ctx, b, "python", "print(1)"); return err })
	if err != nil {
		return err
	}
	base, baseWall, err := crowd(hostPrints("python3", "-c", "print(1)"))
	if err != nil {
		return err
	}
	t.add("100 fresh sandboxes at once (wall)", wall, baseWall, "100 python3 processes (wall)", "<= 300 ms")
	t.add("100 fresh sandboxes at once (p99)", s.at(0.99), base.at(0.99), "100 python3 processes (p99)", "")
	return nil
}

// benchMemory is what a live session has of its own.
func benchMemory(ctx context.Context, b *wasm.Backend, t *table, _ int) error {
	const size = 100
	const code = "import json\ndata = {str(i): i for i in range(1000)}\nprint(len(json.dumps(data)))"
	var live []sandbox.Instance
	defer func() {
		for _, in := range live {
			in.Close()
		}
	}()
	var unique int64
	for range size {
		in, err := b.Start(ctx, sandbox.Spec{Owner: "bench", Runtime: "python"})
		if err != nil {
			return err
		}
		live = append(live, in)
		if _, err := in.Run(ctx, sandbox.Command{Code: code}); err != nil {
			return err
		}
		found, err := in.Inspect(ctx)
		if err != nil {
			return err
		}
		unique += found.Memory
	}
	base, err := privateMemory("python3", "-c", code+"\nimport sys\nsys.stdout.flush()\nsys.stdin.read()")
	if err != nil {
		return err
	}
	each := float64(unique) / size
	t.rows = append(t.rows, []string{
		t.engine, "memory of a live session (unique)", fmt.Sprintf("%.2f MiB", each/(1<<20)), "python3 process (private)",
		fmt.Sprintf("%.2f MiB", base/(1<<20)), fmt.Sprintf("%.2fx", each/base), "<= 15 MiB",
	})
	return nil
}

// privateMemory starts a program that prints and then waits, and reads what it
// has of its own.
func privateMemory(name string, args ...string) (float64, error) {
	cmd := exec.Command(name, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer stdin.Close()
	if _, err := stdout.Read(make([]byte, 100)); err != nil {
		return 0, err
	}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(rollup)) {
		if rest, ok := strings.CutPrefix(line, "Private_Dirty:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no Private_Dirty in smaps_rollup")
}

// benchCPU runs the ten programs of cpu.py and cpu.js inside and outside,
// three times each in turn, and takes the best.
func benchCPU(ctx context.Context, b *wasm.Backend, t *table, _ int) error {
	for _, c := range []struct {
		runtime, code string
		target        map[string]string
	}{{"python", cpuPython, map[string]string{wasm.Native: "<= 1.3x"}}, {"javascript", cpuJavaScript, nil}} {
		inside := func() (string, error) { return once(ctx, b, c.runtime, c.code) }
		outside := func() (string, error) { return natively(c.runtime, c.code, "") }
		if err := t.compare("cpu "+c.runtime, 3, inside, outside, "native "+c.runtime, c.target[t.engine]); err != nil {
			return err
		}
	}
	return nil
}

// benchFiles runs the programs of files.py inside and outside, in one folder.
func benchFiles(ctx context.Context, b *wasm.Backend, t *table, owners string) error {
	dir := filepath.Join(owners, "bench", "files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range []string{filepath.Dir(dir), dir} { // guests may be other users
		if err := os.Chmod(d, 0o777); err != nil {
			return err
		}
	}
	spec := sandbox.Spec{
		Owner: "bench", Runtime: "python", Dir: "/workspace",
		Mounts: []sandbox.Mount{{Guest: "/workspace", Host: dir, DiskBytes: 256 << 20}},
	}
	inside := func() (string, error) { return onceIn(ctx, b, spec, filesPython) }
	outside := func() (string, error) { return natively("python", filesPython, dir) }
	return t.compare("files python", 3, inside, outside, "native python", "")
}

// compare runs programs inside and outside, so often in turn, and adds a row
// with the best of each, and one with the geometric mean.
func (t *table) compare(group string, rounds int, inside, outside func() (string, error), base, target string) error {
	ours, theirs := timing{of: map[string]time.Duration{}}, timing{of: map[string]time.Duration{}}
	for range rounds {
		out, err := inside()
		if err != nil {
			return err
		}
		ours.best(out)
		if out, err = outside(); err != nil {
			return err
		}
		theirs.best(out)
	}
	product := 1.0
	for _, name := range ours.names {
		t.add(group+": "+name, ours.of[name], theirs.of[name], base, "")
		product *= float64(ours.of[name]) / float64(theirs.of[name])
	}
	mean := math.Pow(product, 1/float64(len(ours.names)))
	t.rows = append(t.rows, []string{t.engine, group + ": geometric mean", "", base, "", fmt.Sprintf("%.2fx", mean), target})
	return nil
}

// natively runs a program in the machine's own interpreter, in the folder dir
// if there is one.
func natively(runtime, code, dir string) (string, error) {
	f, err := os.CreateTemp("", "paddock-bench-*."+map[string]string{"python": "py", "javascript": "js"}[runtime])
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(code); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	cmd := exec.Command(natives[runtime], f.Name())
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", natives[runtime], err)
	}
	return string(out), nil
}

type timing struct {
	names []string
	of    map[string]time.Duration
}

// best takes what a run printed where it is better.
func (t *timing) best(out string) {
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ms, err := strconv.ParseFloat(value, 64); err == nil {
			took := time.Duration(ms * 1e6)
			if old, known := t.of[name]; !known {
				t.names = append(t.names, name)
			} else {
				took = min(took, old)
			}
			t.of[name] = took
		}
	}
}

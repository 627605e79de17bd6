// Bench measures paddock and prints one table: each figure beside a baseline
// that was measured in the same run, on the same machine.
//
//	go run ./tests/bench -paddock bin/paddock -cache DIR -python PATH -qjs PATH
//
// It measures the native engine, where the binary carries it, and wazero.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

//go:embed cpu.py
var cpuPython string

//go:embed cpu.js
var cpuJavaScript string

//go:embed files.py
var filesPython string

//go:embed numeric.py
var numericPython string

//go:embed machine.py
var machinePython string

//go:embed agent.py
var agentPython string

// become makes this process what it was started as, when that is not the benchmark.
func become() {
	if linux.Requested(os.Args) {
		os.Exit(linux.Main(os.Args))
	}
	if agent.Requested(os.Args) {
		os.Exit(agent.Main(os.Args))
	}
	if nativeRequested(os.Args) {
		fmt.Fprintln(os.Stderr, "bench:", nativeMain(os.Args))
		os.Exit(1)
	}
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
}

func main() {
	become()
	binary := flag.String("paddock", "bin/paddock", "the binary to measure over MCP")
	cache := flag.String("cache", "", "paddock's cache folder, prepared")
	rounds := flag.Int("rounds", 200, "how often each latency is measured")
	python := flag.String("python", "python3", "a CPython for this machine of the guest's version: the baseline of CPU time")
	qjs := flag.String("qjs", "qjs", "a QuickJS for this machine: likewise")
	disk := flag.String("disk", "", "a folder on the disk that sessions are to be kept on; empty: where temporary files are")
	layout := flag.String("image", "", "an OCI layout with python3, numpy, pandas, node, git and gcc, for the isolation linux; empty: that is left out")
	only := flag.String("only", "", "what to measure, with commas between: "+strings.Join(partNames, ", ")+"; empty: all of it")
	profile := flag.String("cpuprofile", "", "a `FILE` for a profile of this process, which is the server's part")
	flag.Parse()
	natives = map[string]string{"python": *python, "javascript": *qjs}
	b := bench{binary: *binary, cache: *cache, disk: *disk, image: *layout, rounds: *rounds, only: *only}
	if err := b.profiled(context.Background(), *profile); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// natives are the same languages' interpreters, compiled for this machine.
var natives map[string]string

// table is what is printed at the end.
type table struct {
	engine string
	rows   [][]string
}

func (t *table) add(name string, value, baseline time.Duration, base, target string) {
	if t.engine == wasm.Wazero { // it is there for where the other is not
		target = ""
	}
	t.rows = append(t.rows, []string{
		t.engine, name, format(value), base, format(baseline), fmt.Sprintf("%.2fx", float64(value)/float64(baseline)), target,
	})
}

func (t *table) printTo() {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tWHAT\tVALUE\tBASELINE\tVALUE\tRATIO\tTARGET")
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}

func format(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.3f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

// sample is a sorted set of durations.
type sample []time.Duration

func (s sample) sorted() sample {
	slices.Sort(s)
	return s
}

func (s sample) at(p float64) time.Duration { return s[min(len(s)-1, int(p*float64(len(s))))] }

// measure runs f n times, and what comes after it outside of the time.
func measure(n int, f func() error, after ...func() error) (sample, error) {
	s := make(sample, 0, n)
	for range n {
		begin := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		s = append(s, time.Since(begin))
		for _, g := range after {
			if err := g(); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(s)
	return s, nil
}

// bench is what is to be measured.
type bench struct {
	binary, cache, disk, image, only string
	rounds                           int
}

// The parts of the benchmark.
const (
	partBackend  = "backend"
	partStates   = "states"
	partCPU      = "cpu"
	partFiles    = "files"
	partSessions = "sessions"
	partTogether = "together"
	partMCP      = "mcp"
	partLinux    = "linux"
)

var partNames = []string{partBackend, partStates, partCPU, partFiles, partSessions, partTogether, partMCP, partLinux}

func (b bench) wants(part string) bool {
	return b.only == "" || slices.Contains(strings.Split(b.only, ","), part)
}

// profiled is run with a profile in the file; empty: none.
func (b bench) profiled(ctx context.Context, file string) error {
	for part := range strings.SplitSeq(b.only, ",") {
		if part != "" && !slices.Contains(partNames, part) {
			return fmt.Errorf("there is no part %q", part)
		}
	}
	if file == "" {
		return b.run(ctx)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return b.run(ctx)
}

func (b bench) run(ctx context.Context) error {
	owners, err := folder("", "paddock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(owners)
	disk, err := folder(b.disk, "paddock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(disk)
	t := &table{}
	defer t.printTo() // what there is, also after an error
	for _, engine := range []string{wasm.Native, wasm.Wazero} {
		w, err := wasm.New(wasm.Config{CacheDir: b.cache, OwnersDir: filepath.Join(owners, engine), Engine: engine})
		if fault.KindOf(err) == fault.Unavailable {
			fmt.Fprintf(os.Stderr, "bench: without the %s engine: %v\n", engine, err)
			continue
		}
		if err != nil {
			return err
		}
		t.engine = engine
		if err := errors.Join(b.engine(ctx, w, t, filepath.Join(owners, engine)), w.Close()); err != nil {
			return err
		}
	}
	if b.wants(partSessions) { // with the engine that they have here
		t.engine = "session"
		if err := benchSessions(ctx, b.cache, b.binary, disk, t, b.rounds); err != nil {
			return err
		}
	}
	if b.wants(partTogether) {
		t.engine = "session"
		if err := benchMany(ctx, b.cache, disk, t, b.rounds); err != nil {
			return err
		}
	}
	if b.wants(partMCP) {
		t.engine = "mcp stdio"
		if err := benchMCP(ctx, b.binary, owners, t, b.rounds); err != nil {
			return err
		}
	}
	if b.wants(partLinux) {
		t.engine = "linux"
		return b.linux(ctx, disk, t)
	}
	return nil
}

// engine measures one of them.
func (b bench) engine(ctx context.Context, w *wasm.Backend, t *table, owners string) error {
	if err := w.Prepare(ctx); err != nil {
		return err
	}
	type measuring = func(context.Context, *wasm.Backend, *table, int) error
	for _, part := range []struct {
		name string
		do   []measuring
	}{
		{partBackend, []measuring{benchStart, benchFresh, benchInterrupt, benchCrowd, benchMemory}},
		{partStates, []measuring{benchSmallState, benchLargeStates}},
		{partCPU, []measuring{benchCPU}},
		{partFiles, []measuring{func(ctx context.Context, w *wasm.Backend, t *table, _ int) error {
			return benchFiles(ctx, w, t, owners)
		}}},
	} {
		for _, do := range part.do {
			if !b.wants(part.name) {
				break
			}
			if err := do(ctx, w, t, b.rounds); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostPrints starts the host's own interpreter for print(1).
func hostPrints(name string, args ...string) func() error {
	return func() error {
		out, err := exec.Command(name, args...).Output()
		if err == nil && strings.TrimSpace(string(out)) != "1" {
			err = fmt.Errorf("%s printed %q", name, out)
		}
		return err
	}
}

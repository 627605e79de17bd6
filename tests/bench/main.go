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
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

//go:embed cpu.py
var cpuPython string

//go:embed cpu.js
var cpuJavaScript string

//go:embed files.py
var filesPython string

func main() {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	binary := flag.String("paddock", "bin/paddock", "the binary to measure over MCP")
	cache := flag.String("cache", "", "paddock's cache folder, prepared")
	rounds := flag.Int("rounds", 200, "how often each latency is measured")
	python := flag.String("python", "python3", "a CPython for this machine of the guest's version: the baseline of CPU time")
	qjs := flag.String("qjs", "qjs", "a QuickJS for this machine: likewise")
	flag.Parse()
	natives = map[string]string{"python": *python, "javascript": *qjs}
	if err := run(*binary, *cache, *rounds); err != nil {
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

func (t *table) print() {
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

func run(binary, cache string, rounds int) error {
	owners, err := os.MkdirTemp("", "paddock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(owners)
	if err := os.Chmod(owners, 0o755); err != nil {
		return err
	}
	ctx, t := context.Background(), &table{}
	for _, engine := range []string{wasm.Native, wasm.Wazero} {
		b, err := wasm.New(wasm.Config{CacheDir: cache, OwnersDir: filepath.Join(owners, engine), Engine: engine})
		if fault.KindOf(err) == fault.Unavailable {
			fmt.Fprintf(os.Stderr, "bench: without the %s engine: %v\n", engine, err)
			continue
		}
		if err != nil {
			return err
		}
		t.engine = engine
		err = benchEngine(ctx, b, t, rounds)
		if err == nil {
			err = benchFiles(ctx, b, t, filepath.Join(owners, engine))
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	t.engine = "mcp stdio"
	if err := benchMCP(ctx, binary, owners, t, rounds); err != nil {
		return err
	}
	t.print()
	return nil
}

func benchEngine(ctx context.Context, b *wasm.Backend, t *table, rounds int) error {
	if err := b.Prepare(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context, *wasm.Backend, *table, int) error{benchStart, benchFresh, benchCrowd, benchMemory, benchStates, benchCPU} {
		if err := part(ctx, b, t, rounds); err != nil {
			return err
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

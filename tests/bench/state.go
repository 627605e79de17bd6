package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm"
)

// kept is an interpreter whose state is kept by snapshots.
type kept struct {
	sandbox.Instance
	layers [][]byte
	state  []byte
}

func startKept(ctx context.Context, b *wasm.Backend, runtime string, from *sandbox.Resume) (*kept, error) {
	in, err := b.Start(ctx, sandbox.Spec{
		Owner: "bench", Runtime: runtime, Limits: sandbox.Limits{MemoryBytes: 512 << 20}, Snapshots: true, Resume: from,
	})
	return &kept{Instance: in}, err
}

func (k *kept) run(ctx context.Context, code string) error {
	exit, err := k.Run(ctx, sandbox.Command{Code: code})
	if err == nil && exit.Error != nil {
		err = fmt.Errorf("%s: %s", exit.Error.Type, exit.Error.Message)
	}
	return err
}

// snapshot keeps the state in memory, or nowhere.
func (k *kept) snapshot(ctx context.Context, mark string, keep bool) error {
	var w io.Writer = io.Discard
	var layer bytes.Buffer
	if keep {
		w = &layer
	}
	s, err := k.Instance.(sandbox.Snapshotter).Snapshot(ctx, w, sandbox.SnapshotOptions{Mark: mark})
	if !keep {
		return err
	}
	if s.Whole {
		k.layers = nil
	}
	if layer.Len() > 0 {
		k.layers = append(k.layers, layer.Bytes())
	}
	k.state = s.State
	return err
}

func (k *kept) resume() *sandbox.Resume {
	r := &sandbox.Resume{State: k.state, Anew: true}
	for _, layer := range k.layers {
		r.Layers = append(r.Layers, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	}
	return r
}

// benchStates is what keeping the state costs, and what it gives back.
func benchStates(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	for _, part := range []func(context.Context, *wasm.Backend, *table, int) error{benchSmallState, benchSession, benchLargeStates} {
		if err := part(ctx, b, t, n); err != nil {
			return err
		}
	}
	return nil
}

// benchSmallState is a run that does next to nothing, with a snapshot and without.
func benchSmallState(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	begin := map[string]string{"python": "x = 0", "javascript": "globalThis.x = 0"}
	for _, l := range languages {
		in, err := startKept(ctx, b, l.runtime, nil)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := in.run(ctx, begin[l.runtime]); err != nil {
			return err
		}
		small := func() error { return in.run(ctx, "x += 1") }
		keep := func() error { return in.snapshot(ctx, "m", false) }
		alone, err := measure(n, small, keep)
		if err != nil {
			return err
		}
		both, err := measure(n, func() error {
			if err := small(); err != nil {
				return err
			}
			return keep()
		})
		if err != nil {
			return err
		}
		t.add(l.runtime+": x += 1 and a snapshot (p50)", both.at(0.5), alone.at(0.5), "the same without (p50)", "+ < 1 ms")
	}
	return nil
}

// steps are what a session does, again and again.
var steps = []string{
	"import json, re, statistics",
	"rows = [{'id': i, 'name': f'item {i}', 'price': i * 1.5} for i in range(500 + %d)]",
	"total = sum(r['price'] for r in rows); total",
	"by_name = {r['name']: r for r in rows}",
	"text = json.dumps(rows)",
	"words = re.findall(r'[a-z]+', text); len(words)",
	"def mean(key): return statistics.mean(r[key] for r in rows)",
	"mean('price'), mean('id')",
	"rows.sort(key=lambda r: -r['price']); rows[:3]",
	"print(len(text), %d)",
}

// benchSession is how much the snapshots of a session write.
func benchSession(ctx context.Context, b *wasm.Backend, t *table, _ int) error {
	const calls = 50
	in, err := startKept(ctx, b, "python", nil)
	if err != nil {
		return err
	}
	defer in.Close()
	written, large := 0, 0
	for n := range calls {
		code := steps[n%len(steps)]
		if strings.Contains(code, "%d") {
			code = fmt.Sprintf(code, n)
		}
		if err := in.run(ctx, code); err != nil {
			return err
		}
		if err := in.snapshot(ctx, "", true); err != nil {
			return err
		}
		size := len(in.layers[len(in.layers)-1])
		written, large = written+size, max(large, size)
	}
	t.rows = append(t.rows, []string{
		t.engine, fmt.Sprintf("bytes of a snapshot, mean of %d calls", calls), fmt.Sprintf("%.1f KiB", float64(written)/calls/1024), "the largest",
		fmt.Sprintf("%.1f KiB", float64(large)/1024), "", "",
	})
	return nil
}

// touch changes all of a buffer: half of it can be made smaller, half cannot.
const touch = `import random
def touch(b):
  noise, text = random.randbytes(1 << 19), str(random.random()).encode() * 30000
  for i in range(0, len(b), 1 << 20):
    b[i:i + (1 << 19)] = noise[i %% 7919:] + noise[:i %% 7919]
    b[i + (1 << 19):i + (1 << 20)] = text[:1 << 19]
b = bytearray(%d)
touch(b)`

func benchLargeStates(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	for _, mib := range []int{1, 16, 64} {
		if err := benchLargeState(ctx, b, t, mib, max(n/10, 5)); err != nil {
			return err
		}
	}
	return nil
}

func benchLargeState(ctx context.Context, b *wasm.Backend, t *table, mib, n int) error {
	in, err := startKept(ctx, b, "python", nil)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := in.run(ctx, fmt.Sprintf(touch, mib<<20)); err != nil {
		return err
	}
	if err := in.snapshot(ctx, "m", true); err != nil {
		return err
	}
	again := func() error { return in.run(ctx, "touch(b)") }
	back := func() error { return in.Instance.(sandbox.Snapshotter).Rewind(ctx, "m") }
	snap := func() error { return in.snapshot(ctx, "n", false) }
	if err := again(); err != nil {
		return err
	}
	snapped, err := measure(n, snap, back, again)
	if err != nil {
		return err
	}
	rewound, err := measure(n, back, again)
	if err != nil {
		return err
	}
	forked, err := firstResult(ctx, n, func() (sandbox.Instance, error) {
		return in.Instance.(sandbox.Forker).Fork(ctx, "m", sandbox.Spec{Owner: "bench", Runtime: "python", Limits: sandbox.Limits{MemoryBytes: 512 << 20}})
	})
	if err != nil {
		return err
	}
	resumed, err := firstResult(ctx, n, func() (sandbox.Instance, error) {
		k, err := startKept(ctx, b, "python", in.resume())
		return k.Instance, err
	})
	if err != nil {
		return err
	}
	target := map[int][3]string{64: {"<= 10 ms in memory", "<= 5 ms", "<= 10 ms"}}[mib]
	d, what, name := copying(mib, n), fmt.Sprintf("copying %d MiB (p50)", mib), fmt.Sprintf("%d MiB touched: ", mib)
	t.add(name+"a snapshot to nowhere (p50)", snapped.at(0.5), d, what, target[0])
	t.add(name+"rewind (p50)", rewound.at(0.5), d, what, target[1])
	t.add(name+"fork to its first result (p50)", forked.at(0.5), d, what, target[2])
	t.add(name+"resume from memory to its first result (p50)", resumed.at(0.5), d, what, "")
	return nil
}

// firstResult is the time from no instance to the result of its first program.
func firstResult(ctx context.Context, n int, start func() (sandbox.Instance, error)) (sample, error) {
	var made sandbox.Instance
	return measure(n, func() (err error) {
		if made, err = start(); err == nil {
			_, err = made.Run(ctx, sandbox.Command{Code: "x = b[0]"})
		}
		return err
	}, func() error { return made.Close() })
}

// copying is how long the machine takes to copy so much memory that is there.
func copying(mib, n int) time.Duration {
	from, to := bytes.Repeat([]byte{1}, mib<<20), bytes.Repeat([]byte{2}, mib<<20)
	s, _ := measure(n, func() error { copy(to, from); return nil }) // which never fails
	return s.at(0.5)
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	r := &sandbox.Resume{State: k.state, Reseed: true}
	for _, layer := range k.layers {
		r.Layers = append(r.Layers, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	}
	return r
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

// sizes are how many MiB are touched.
var sizes = []int{1, 16, 64}

// touching is a way to change all of a buffer.
type touching struct{ name, code string }

// touches are with bytes that cannot be made smaller and with such as can.
var touches = []touching{
	{"random bytes", `import random
def touch(b):
  noise = random.randbytes(1 << 20)
  for i in range(0, len(b), 1 << 20): b[i:i + (1 << 20)] = noise[(i >> 8) % 7919:] + noise[:(i >> 8) % 7919]`},
	{"text", `import random
words = [f'word{i * 7919 % 1000}' for i in range(500)]
def touch(b):
  line = ' '.join(random.choices(words, k=20000)).encode()
  for i in range(0, len(b), len(line)): b[i:i + len(line)] = line[:len(b) - i]`},
}

// begin makes a buffer b and fills it; "touch(b)" changes all of it.
func (k touching) begin(mib int) string {
	return fmt.Sprintf("%s\nb = bytearray(%d)\ntouch(b)", k.code, mib<<20)
}

func benchLargeStates(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	for _, kind := range touches {
		for _, mib := range sizes {
			if err := benchLargeState(ctx, b, t, kind, mib, max(n/10, 5)); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrival discards what is written, and notes when the first of it came: the
// state has been taken by then, and the program could go on.
type arrival struct{ at time.Time }

func (a *arrival) Write(p []byte) (int, error) {
	if a.at.IsZero() {
		a.at = time.Now()
	}
	return len(p), nil
}

// large are the times of a state in which much changed.
type large struct{ taken, written, rewound, forked, resumed sample }

func benchLargeState(ctx context.Context, b *wasm.Backend, t *table, kind touching, mib, n int) error {
	in, err := startKept(ctx, b, "python", nil)
	if err != nil {
		return err
	}
	defer in.Close()
	m, err := in.large(ctx, b, kind.begin(mib), n)
	if err != nil {
		return err
	}
	var target [5]string
	if mib == 64 {
		target = [5]string{"<= 10 ms", "", "<= 5 ms", "<= 10 ms", "<= 40 ms"}
	}
	d, what, name := copying(mib, n), fmt.Sprintf("copying %d MiB (p50)", mib), fmt.Sprintf("%d MiB of %s touched: ", mib, kind.name)
	t.add(name+"taken, in memory (p50)", m.taken.at(0.5), d, what, target[0])
	t.add(name+"written, to nowhere (p50)", m.written.at(0.5), d, what, target[1])
	t.add(name+"rewind (p50)", m.rewound.at(0.5), d, what, target[2])
	t.add(name+"fork to its first result (p50)", m.forked.at(0.5), d, what, target[3])
	t.add(name+"resume from memory to its first result (p50)", m.resumed.at(0.5), d, what, target[4])
	return nil
}

func (k *kept) large(ctx context.Context, b *wasm.Backend, begin string, n int) (m large, err error) {
	if err := k.run(ctx, begin); err != nil {
		return m, err
	}
	if err := k.snapshot(ctx, "m", true); err != nil {
		return m, err
	}
	again := func() error { return k.run(ctx, "touch(b)") }
	back := func() error { return k.Instance.(sandbox.Snapshotter).Rewind(ctx, "m") }
	if err := again(); err != nil {
		return m, err
	}
	m.written, err = measure(n, func() error {
		begin, first := time.Now(), arrival{}
		_, err := k.Instance.(sandbox.Snapshotter).Snapshot(ctx, &first, sandbox.SnapshotOptions{Mark: "n"})
		m.taken = append(m.taken, first.at.Sub(begin))
		return err
	}, back, again)
	if err != nil {
		return m, err
	}
	snap := func() error { return k.snapshot(ctx, "n", false) } // as after every call of a session
	if err := snap(); err != nil {
		return m, err
	}
	if m.rewound, err = measure(n, back, again, snap); err != nil {
		return m, err
	}
	m.forked, err = firstResult(ctx, n, func() (sandbox.Instance, error) {
		return k.Instance.(sandbox.Forker).Fork(ctx, "m", sandbox.Spec{Owner: "bench", Runtime: "python", Limits: sandbox.Limits{MemoryBytes: 512 << 20}})
	})
	if err != nil {
		return m, err
	}
	m.resumed, err = firstResult(ctx, n, func() (sandbox.Instance, error) {
		k, err := startKept(ctx, b, "python", k.resume())
		return k.Instance, err
	})
	m.taken = m.taken.sorted()
	return m, err
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

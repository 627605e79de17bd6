package main

import (
	"context"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm"
)

// stubborn swallows every interrupt; obedient ends with the first.
const (
	stubborn = "while True:\n  try:\n    while True: pass\n  except BaseException: pass"
	obedient = "while True: pass"
)

// benchInterrupt is how long a program that swallows its interrupt still holds
// its session, beside one that does not.
func benchInterrupt(ctx context.Context, b *wasm.Backend, t *table, n int) error {
	n = max(n/20, 5)
	held, err := interrupted(ctx, b, stubborn, n)
	if err != nil {
		return err
	}
	base, err := interrupted(ctx, b, obedient, n)
	if err != nil {
		return err
	}
	t.add("a program that swallows its interrupt is gone (p50)", held.at(0.5), base.at(0.5), "one that does not (p50)", "<= 250 ms")
	return nil
}

// interrupted measures the time from a run's cancellation to its end.
func interrupted(ctx context.Context, b *wasm.Backend, code string, n int) (sample, error) {
	s := make(sample, 0, n)
	for range n {
		in, err := b.Start(ctx, sandbox.Spec{Owner: "bench", Runtime: "python"})
		if err != nil {
			return nil, err
		}
		running, cancel := context.WithCancel(ctx)
		var asked time.Time
		time.AfterFunc(20*time.Millisecond, func() { asked = time.Now(); cancel() })
		_, _ = in.Run(running, sandbox.Command{Code: code}) // how it ends differs: only when counts
		<-running.Done()
		s = append(s, time.Since(asked))
		if err := in.Close(); err != nil {
			return nil, err
		}
	}
	return s.sorted(), nil
}

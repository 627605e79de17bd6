package pattern

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
)

// Whoever matches for long waits for their turn, and one owner has one at a time.
func TestLongWorkTakesTurns(t *testing.T) {
	var all []*turn
	for k := range cap(slots) {
		got, err := take(t.Context(), string(rune('a'+k)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, owner := range []string{"a", "z"} {
		if _, err := take(ctx, owner); !errors.Is(err, context.Canceled) {
			t.Errorf("%s does not wait: %v", owner, err)
		}
	}
	m := NewMeter(t.Context(), "z", MaxSteps)
	if err := m.Spend(free - 1); err != nil || m.turn != nil {
		t.Error("short work waits", err)
	}
	for _, one := range all {
		one.end()
	}
	if err := m.Spend(piece); err != nil || m.turn == nil {
		t.Error("long work has no turn", err)
	}
	m.Close()
	m.Close()
	if len(slots) != 0 || len(lines.of) != 0 {
		t.Errorf("%d turns and %d owners are left", len(slots), len(lines.of))
	}
}

func TestManyTakeTurnsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for k := range 4 * runtime.NumCPU() {
		all.Go(func() {
			m := NewMeter(t.Context(), string(rune('a'+k%3)), MaxSteps)
			defer m.Close()
			for range 100 {
				if err := m.Spend(piece); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if len(slots) != 0 || len(lines.of) != 0 {
		t.Errorf("%d turns and %d owners are left", len(slots), len(lines.of))
	}
}

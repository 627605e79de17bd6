package limit

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"testing"
	"time"
)

// work is what an execution stands for here: about a millisecond of one CPU.
func work() {
	block := make([]byte, 64<<10)
	for range 16 {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
}

// BenchmarkFlood measures what a principal's executions take while another
// keeps 64 in line, as a ratio to what they take alone: flooded/alone.
func BenchmarkFlood(b *testing.B) {
	alone := median(b, 0)
	flooded := median(b, 64)
	b.ReportMetric(float64(flooded)/float64(alone), "flooded/alone")
	b.ReportMetric(0, "ns/op")
}

// median is of b.N executions, 200 at least, one after the other.
func median(b *testing.B, flood int) time.Duration {
	g := gate(b, Config{})
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range flood {
		all.Go(func() {
			for {
				leave, err := g.Enter(ctx, "flood")
				if err != nil {
					return
				}
				work()
				leave()
			}
		})
	}
	took := make([]time.Duration, max(b.N, 200))
	for k := range took {
		began := time.Now()
		leave, err := g.Enter(ctx, "victim")
		if err != nil {
			b.Fatal(err)
		}
		work()
		leave()
		took[k] = time.Since(began)
	}
	cancel()
	all.Wait()
	slices.Sort(took)
	return took[len(took)/2]
}

// BenchmarkEnter is what admission costs where nobody waits.
func BenchmarkEnter(b *testing.B) {
	g := gate(b, Config{})
	for b.Loop() {
		leave, err := g.Enter(b.Context(), "a")
		if err != nil {
			b.Fatal(err)
		}
		leave()
	}
}

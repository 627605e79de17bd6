package worker

import (
	"io"
	"math"
	"testing"
	"time"
)

// BenchmarkFresh is what a new interpreter, its first program and its end cost
// within the worker, and which part of that is what.
func BenchmarkFresh(b *testing.B) {
	for name, code := range map[string]string{"python": "print(1)", "javascript": "console.log(1)"} {
		b.Run(name, func(b *testing.B) {
			l, err := newLoader(b.Context(), b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			p, err := l.load(b.Context(), name, true)
			if err != nil {
				b.Fatal(err)
			}
			var parts [5]time.Duration
			for b.Loop() {
				benchmarkFresh(b, p, code, &parts)
			}
			for i, unit := range []string{"revive", "greet", "run", "checkpoint", "drop"} {
				b.ReportMetric(float64(parts[i].Microseconds())/float64(b.N), unit+"-µs")
			}
		})
	}
}

func benchmarkFresh(b *testing.B, p *program, code string, parts *[5]time.Duration) {
	in := &instance{program: p, log: io.Discard}
	in.connect(nil)
	last := time.Now()
	step := func(n int, err error) {
		if err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		parts[n] += now.Sub(last)
		last = now
	}
	in.saved.pages = newPages()
	err := in.instantiate(nil)
	step(0, err)
	in.words = in.program.language.interrupts(in.vm)
	step(1, in.initGuest())
	in.ends.Control.Begin(math.MaxInt64)
	_, _, err = in.runCode(code)
	step(2, err)
	step(3, in.take())
	in.drop()
	in.saved.drop()
	step(4, nil)
}

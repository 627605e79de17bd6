//go:build linux && (amd64 || arm64)

package linux

import (
	"io"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// BenchmarkBoot is a box from nothing until its first program answers, and what
// of that each step takes.
func BenchmarkBoot(b *testing.B) {
	l := newLauncher(b)
	for _, c := range []struct {
		name    string
		overlay int64
	}{{"read-only", 0}, {"overlay", 64 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			var start, answer, end time.Duration
			for b.Loop() {
				p := newPlan(b)
				p.id, p.overlayBytes = "bench", c.overlay
				began := time.Now()
				box := bootBox(b, l, p)
				started := time.Now()
				if _, err := box.stream.Write([]byte("x")); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(box.stream, make([]byte, 1)); err != nil {
					b.Fatal(err, box.close())
				}
				answered := time.Now()
				box.close()
				start += started.Sub(began)
				answer += answered.Sub(started)
				end += time.Since(answered)
			}
			for name, d := range map[string]time.Duration{"start-ms": start, "first-program-ms": answer, "end-ms": end} {
				b.ReportMetric(d.Seconds()*1000/float64(b.N), name)
			}
		})
	}
}

// BenchmarkInterpreter is a first result from a machine that is not there yet, and
// one more from it.
func BenchmarkInterpreter(b *testing.B) {
	backend := newBackend(b)
	for _, r := range backend.Probe(b.Context()).Runtimes {
		b.Run(r.Name+"/cold", func(b *testing.B) {
			for b.Loop() {
				in := startOne(b, backend, r.Name)
				runOne(b, in, trivial[r.Name])
				in.Close()
			}
		})
		b.Run(r.Name+"/warm", func(b *testing.B) {
			in := startOne(b, backend, r.Name)
			defer in.Close()
			runOne(b, in, trivial[r.Name])
			for b.Loop() {
				runOne(b, in, trivial[r.Name])
			}
		})
	}
}

// trivial is a program for each runtime that does nothing.
var trivial = map[string]string{"python": "1", "javascript": "1", "bash": ":"}

func startOne(b *testing.B, backend *Backend, runtime string) sandbox.Instance {
	b.Helper()
	in, err := backend.Start(b.Context(), sandbox.Spec{Owner: "bench", Runtime: runtime})
	if err != nil {
		b.Fatal(err)
	}
	return in
}

func runOne(b *testing.B, in sandbox.Instance, code string) {
	b.Helper()
	if exit, err := in.Run(b.Context(), sandbox.Command{Code: code}); err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/sandbox"
)

// BenchmarkMachineState is a box with a live interpreter that is saved, and one that
// begins as that until its first result, beside a fresh one's first result.
func BenchmarkMachineState(b *testing.B) {
	backend := newBackend(b)
	for _, c := range []struct{ name, runtime, code string }{
		{"python", "python", "x = 1"},
		{"python-64MiB", "python", "import random; x = random.randbytes(64 << 20)"},
		{"python-64MiB-alike", "python", "x = list(range(1 << 21))"},
		{"javascript", "javascript", "var x = 1"},
		{"bash", "bash", "x=1"},
	} {
		b.Run(c.name, func(b *testing.B) {
			spec := keptSpec(b, c.runtime)
			var save, restore, fresh time.Duration
			var raw, small int
			for b.Loop() {
				began := time.Now()
				in, err := backend.Start(b.Context(), spec)
				if err != nil {
					b.Fatal(err)
				}
				says(b, in, trivial[c.runtime])
				fresh += time.Since(began)
				says(b, in, c.code)
				var data bytes.Buffer
				began = time.Now()
				state, err := backend.SaveMachine(b.Context(), "alice", "one", 1<<30, &data, func() error { return nil })
				if err != nil {
					b.Fatal(err)
				}
				save += time.Since(began)
				in.Close()
				raw, small = data.Len(), compressed(b, data.Bytes())
				next := spec
				next.Machine = &sandbox.MachineState{State: state.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }}
				began = time.Now()
				if in, err = backend.Start(b.Context(), next); err != nil {
					b.Fatal(err)
				}
				says(b, in, trivial[c.runtime])
				restore += time.Since(began)
				in.Close()
			}
			n := float64(b.N)
			b.ReportMetric(save.Seconds()*1000/n, "save-ms")
			b.ReportMetric(restore.Seconds()*1000/n, "restored-ms")
			b.ReportMetric(fresh.Seconds()*1000/n, "fresh-ms")
			b.ReportMetric(restore.Seconds()/fresh.Seconds(), "restored/fresh")
			b.ReportMetric(float64(raw)/(1<<20), "MiB")
			b.ReportMetric(float64(small)/(1<<20), "zstd-MiB")
		})
	}
}

func compressed(b *testing.B, data []byte) int {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	return len(e.EncodeAll(data, nil))
}

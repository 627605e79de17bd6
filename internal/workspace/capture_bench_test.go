package workspace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/blob"
)

func benchTree(b *testing.B, files int) (*Tree, *Listing) {
	b.Helper()
	dir := b.TempDir()
	t, err := Open(dir, Options{DiskBytes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close() })
	for k := range files {
		p := filepath.Join(dir, fmt.Sprint("folder ", k%100/10), fmt.Sprint("file ", k))
		if k < 100 {
			_ = os.MkdirAll(filepath.Dir(p), 0o755) // the file tells
		}
		if err := os.WriteFile(p, fmt.Append(nil, k), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	s := newMemoryBlobs()
	time.Sleep(2 * clockTick) // so that nothing is racy: the benchmark is of what follows
	l, _, err := t.Capture(nil, s.put)
	if err != nil {
		b.Fatal(err)
	}
	return t, l
}

var benchSizes = []int{5, 10_000}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, _ := benchTree(b, n)
			before, err := t.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				after, err := t.Snapshot()
				if err != nil {
					b.Fatal(err)
				}
				if len(before.Changes(after)) != 0 {
					b.Fatalf("before.Changes(after): got %v, want none", before.Changes(after))
				}
			}
		})
	}
}

func BenchmarkCapture(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, l := benchTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				_, changes, err := t.Capture(l, func(string, io.Reader) (blob.Ref, error) { panic("it did not change") })
				if err != nil {
					b.Fatal(err)
				}
				if len(changes) != 0 {
					b.Fatalf("changes: got %v, want none", changes)
				}
			}
		})
	}
}

func BenchmarkCapturePaths(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, l := benchTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				_, changes, err := t.CapturePaths(l, []string{"folder 0/file 1"}, nil)
				if err != nil {
					b.Fatal(err)
				}
				if len(changes) != 0 {
					b.Fatalf("changes: got %v, want none", changes)
				}
			}
		})
	}
}

func BenchmarkApplyNothing(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, l := benchTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				_, changes, err := t.Apply(l, l, nil)
				if err != nil {
					b.Fatal(err)
				}
				if len(changes) != 0 {
					b.Fatalf("changes: got %v, want none", changes)
				}
			}
		})
	}
}

func BenchmarkEncodeListing(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, l := benchTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				data, err := l.MarshalBinary()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(data)), "bytes")
			}
		})
	}
}

package blob_test

import (
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"paddock/internal/blob"
)

// BenchmarkCheckpoint is what a small run costs: three small contents, synced.
func BenchmarkCheckpoint(b *testing.B) {
	s, _ := open(b, blob.Options{})
	text := strings.Repeat("some state ", 1000)
	for n := uint64(0); b.Loop(); n++ {
		batch := begin(b, s)
		for k := range 3 {
			if _, err := batch.Put(strings.NewReader(text + string(binary.LittleEndian.AppendUint64([]byte{byte(k)}, n)))); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
}

// BenchmarkPut is one content of 16 MiB without its sync.
func BenchmarkPut(b *testing.B) {
	for name, content := range map[string]string{"noise": noise(16 << 20), "text": strings.Repeat("0123456789abcde\n", 1<<20)} {
		b.Run(name, func(b *testing.B) {
			s, _ := open(b, blob.Options{})
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				batch := begin(b, s)
				if _, err := batch.Put(strings.NewReader(content)); err != nil {
					b.Fatal(err)
				}
				batch.Close()
			}
		})
	}
}

// BenchmarkOpen reads 16 MiB that were compressed.
func BenchmarkOpen(b *testing.B) {
	s, _ := open(b, blob.Options{})
	ref := keep(b, s, strings.Repeat("0123456789abcde\n", 1<<20))[0]
	b.SetBytes(ref.Size)
	for b.Loop() {
		r, err := s.Open(ref)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkBytes(b *testing.B) {
	s, _ := open(b, blob.Options{})
	keep(b, s, "a", "b")
	for b.Loop() {
		if _, err := s.Bytes(); err != nil {
			b.Fatal(err)
		}
	}
}

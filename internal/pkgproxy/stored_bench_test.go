package pkgproxy

import (
	"io"
	"strings"
	"testing"
)

// BenchmarkStored gives out a file of 32 MiB that is in the cache: opened alone, as for a
// HEAD request, and all of it.
func BenchmarkStored(b *testing.B) {
	s, err := openStore(b.TempDir(), 1<<30, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	text := strings.Repeat("0123456789abcdef", 2<<20)
	d := sha(text)
	for name, most := range map[string]int64{"opened": 0, "read": int64(len(text))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				f, err := s.get(b.Context(), d, "x", contents(text))
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.CopyN(io.Discard, f, most); err != nil {
					b.Fatal(err)
				} else if n != most {
					b.Fatalf("io.CopyN(io.Discard, f, most): got %v, want %v", n, most)
				}
				f.Close()
			}
		})
	}
}

package commitlog_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/commitlog"
)

// contentBytes is what a small call keeps: a layer and a manifest.
const contentBytes = 6 << 10

func noise(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // never fails
	return data
}

// BenchmarkCommit is a commit of a call's content, alone and by 32 at once, beside writing
// and syncing a file of as many bytes.
func BenchmarkCommit(b *testing.B) {
	data := noise(contentBytes)
	b.Run("write and sync a file", func(b *testing.B) {
		dir := b.TempDir()
		for n := 0; b.Loop(); n++ {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
			if err == nil {
				_, err = f.Write(data)
			}
			if err == nil {
				err = f.Sync()
			}
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("%d at once", callers), func(b *testing.B) {
			dir := b.TempDir()
			l, err := commitlog.Open(commitlog.Options{Dir: dir, Boot: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.SetParallelism(callers)
			var names atomic.Int64
			commit := func() {
				n := names.Add(1)
				name := filepath.Join(dir, "line", fmt.Sprint(n%int64(callers)), fmt.Sprint(n))
				err := l.Commit([]blob.Write{{Name: name, Data: data, Deferred: true}})
				if err == nil {
					err = l.Files().Remove(name)
				}
				if err != nil {
					b.Error(err)
				}
			}
			if callers == 1 {
				for b.Loop() {
					commit()
				}
				return
			}
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					commit()
				}
			})
		})
	}
}

// BenchmarkRecover is the start after a power cut, for each MiB of log, beside reading as
// many bytes of files.
func BenchmarkRecover(b *testing.B) {
	const mib = 64
	data := noise(contentBytes)
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		dir := filepath.Join(b.TempDir(), fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		l, err := commitlog.Open(commitlog.Options{Dir: dir, Boot: "before"})
		if err != nil {
			b.Fatal(err)
		}
		if err := commitlog.Fill(l, mib<<20, func(k int) blob.Write {
			return blob.Write{Name: filepath.Join(dir, "line", fmt.Sprint(k%32), fmt.Sprint(k)), Data: data, Deferred: true}
		}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		next, err := commitlog.Open(commitlog.Options{Dir: dir, Boot: "after"})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := next.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N)/mib, "ms/MiB")
}

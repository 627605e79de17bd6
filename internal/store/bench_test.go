package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// record is about as long as a session's record is.
var record = []byte(strings.Repeat(`{"version":1,"session_id":"s-abc"}`, 20))

func example(owner string, i int) Session {
	made := time.Date(2026, 10, 1, 0, 0, i, 0, time.UTC)
	return Session{
		Owner: owner, ID: fmt.Sprintf("s-%05d", i), Folder: fmt.Sprintf("s-%05d", i), Isolation: "wasm", Language: "python",
		CreatedAt: made, LastUsedAt: made.Add(time.Hour), ExpiresAt: made.Add(25 * time.Hour),
		Executions: int64(i), TreeBytes: 1000, Checkpoints: 3, Head: int64(i), Record: record,
	}
}

// filled gives a complete index of n sessions.
func filled(b testing.TB, n int) *Store {
	s := Open(filepath.Join(b.TempDir(), "index.db"), nil)
	b.Cleanup(func() { s.Close() })
	var sessions []Session
	for i := range n {
		sessions = append(sessions, example("local", i))
	}
	r, err := s.Rebuild(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Owner(b.Context(), "local", sessions); err != nil {
		b.Fatal(err)
	}
	if err := r.Finish(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkPutSession is what a run pays, and what the writer does behind it.
func BenchmarkPutSession(b *testing.B) {
	s := filled(b, 10000)
	b.Run("call", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			r := example("local", i%1000)
			r.Head = int64(i) + 20000
			s.PutSession(r)
			if i%1000 == 999 { // a queue that is not bounded by anything but its writer
				b.StopTimer()
				if err := s.await(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		}
	})
	b.Run("until written", func(b *testing.B) {
		for i := range b.N {
			r := example("local", i*7919%10000)
			r.Head = int64(i) + 1<<40
			s.PutSession(r)
			if err := s.await(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead10000(b *testing.B) {
	s := filled(b, 10000)
	for name, read := range map[string]func() error{
		"Complete": func() error {
			if !s.Complete() {
				b.Fatal("it is not complete")
			}
			return nil
		},
		"Sessions":    func() error { _, err := s.Sessions("local"); return err },
		"Totals":      func() error { _, _, err := s.Totals("local", "s-00077"); return err },
		"Sizes":       func() error { _, err := s.Sizes("local"); return err },
		"Expired 100": func() error { _, err := s.Expired(time.Now().AddDate(9, 0, 0), 100); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRebuild10000(b *testing.B) {
	for range b.N {
		filled(b, 10000)
	}
}

func BenchmarkOpen(b *testing.B) {
	b.Run("a new file", func(b *testing.B) {
		dir := b.TempDir()
		for i := range b.N {
			Open(filepath.Join(dir, fmt.Sprint(i)), nil).Close()
		}
	})
	for _, n := range []int{0, 100, 10000} {
		b.Run(fmt.Sprint("with ", n), func(b *testing.B) {
			s := filled(b, n)
			s.Close()
			for b.Loop() {
				Open(s.path, nil).Close()
			}
		})
	}
}

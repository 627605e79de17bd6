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

// filled gives a complete index of n sessions, with m checkpoints each.
func filled(b testing.TB, n, m int) *Store {
	s := Open(filepath.Join(b.TempDir(), "index.db"), nil)
	b.Cleanup(func() { s.Close() })
	var sessions []Session
	var checkpoints []Checkpoint
	for i := range n {
		sessions = append(sessions, example("local", i))
		for j := range m {
			checkpoints = append(checkpoints, Checkpoint{Owner: "local", Session: sessions[i].ID, Number: int64(j), At: sessions[i].CreatedAt, Cause: "execute"})
		}
	}
	r, err := s.Rebuild(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Owner(b.Context(), "local", sessions, checkpoints); err != nil {
		b.Fatal(err)
	}
	if err := r.Finish(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkPutSession is what a run pays, and what the writer does behind it.
func BenchmarkPutSession(b *testing.B) {
	s := filled(b, 10000, 0)
	b.Run("call", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			r := example("local", i%1000)
			r.Head = int64(i) + 20000
			s.PutSession(r)
			s.PutCheckpoint(Checkpoint{Owner: "local", Session: r.ID, Number: int64(i)})
			if i%1000 == 999 { // a queue that is not bounded by anything but its writer
				b.StopTimer()
				if err := s.Flush(b.Context()); err != nil {
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
			s.PutCheckpoint(Checkpoint{Owner: "local", Session: r.ID, Number: int64(i)})
			if err := s.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead10000(b *testing.B) {
	s := filled(b, 10000, 10)
	for name, read := range map[string]func() error{
		"Complete": func() error {
			if !s.Complete() {
				b.Fatal("it is not complete")
			}
			return nil
		},
		"Sessions":    func() error { _, err := s.Sessions("local"); return err },
		"Heads":       func() error { _, err := s.Heads("local"); return err },
		"Owners":      func() error { _, err := s.Owners(); return err },
		"Totals":      func() error { _, err := s.Totals("local"); return err },
		"Expired 100": func() error { _, err := s.Expired(time.Now().AddDate(9, 0, 0), 100); return err },
		"Checkpoints": func() error { _, err := s.Checkpoints("local", "s-00077"); return err },
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
		filled(b, 10000, 10)
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
			s := filled(b, n, 10)
			s.Close()
			for b.Loop() {
				Open(s.path, nil).Close()
			}
		})
	}
}

package session_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// BenchmarkCall is a small call, in one session and in 32 at once, of which the
// state is kept, beside one of which it is not. The program itself takes
// microseconds: it is the fake backend's.
func BenchmarkCall(b *testing.B) {
	for _, ephemeral := range []bool{true, false} {
		for _, sessions := range []int{1, 32} {
			b.Run(fmt.Sprintf("ephemeral=%v/sessions=%d", ephemeral, sessions), func(b *testing.B) {
				backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
				defer backend.Close()
				m, err := session.New(session.Config{Dir: b.TempDir(), Backends: []sandbox.Backend{backend}})
				if err != nil {
					b.Fatal(err)
				}
				defer m.Close()
				ids := make(chan session.ID, sessions)
				for range sessions {
					i, err := m.Create(b.Context(), session.Local, "", session.Settings{Ephemeral: ephemeral})
					if err != nil {
						b.Fatal(err)
					}
					ids <- i.ID
				}
				var n atomic.Int64
				call := func() {
					id := <-ids
					defer func() { ids <- id }()
					code := fmt.Sprintf("x = %d", n.Add(1))
					if _, err := m.Execute(b.Context(), session.Local, id, session.Request{Code: code, Language: "python"}); err != nil {
						b.Error(err)
					}
				}
				b.SetParallelism(sessions)
				b.ResetTimer()
				if sessions == 1 {
					for b.Loop() {
						call()
					}
					return
				}
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						call()
					}
				})
			})
		}
	}
}

package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// stored gives a Manager with n sleeping sessions of local, and an index that
// knows them.
func stored(b *testing.B, n int) *Manager {
	b.Helper()
	dir := b.TempDir()
	now := time.Now()
	for k := range n {
		r := record{Version: recordVersion, ID: ID(fmt.Sprintf("s-%05d", k)), Owner: Local, Isolation: "fake", CreatedAt: now, LastUsedAt: now, TreeBytes: 4096}
		data, err := json.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		home := filepath.Join(dir, "owners", "local", string(r.ID))
		if err := os.MkdirAll(home, 0o700); err != nil {
			b.Fatal(err)
		}
		for name, data := range map[string][]byte{recordFile: data, lockFile: nil} {
			if err := os.WriteFile(filepath.Join(home, name), data, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	old := now.Add(-time.Minute) // as where nobody made one just now
	if err := os.Chtimes(filepath.Join(dir, "owners", "local"), old, old); err != nil {
		b.Fatal(err)
	}
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	m, err := New(Config{Dir: dir, Backends: []sandbox.Backend{backend}, MaxStored: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Close(); err != nil {
			b.Error(err)
		}
		backend.Close()
	})
	for !m.index.Complete() {
		time.Sleep(10 * time.Millisecond)
	}
	return m
}

// BenchmarkUsage10000 is what it takes to find out what an owner with 10,000
// sleeping sessions has, when what is known is too old.
func BenchmarkUsage10000(b *testing.B) {
	m := stored(b, 10_000)
	look := func(b *testing.B) {
		b.Helper()
		m.forgetUsage(Local)
		if u, err := m.usage(Local); err != nil || u.sessions < 10_000 || u.files < 10_000*4096 {
			b.Fatalf("%+v, %v", u, err)
		}
	}
	b.Run("nothing changed", func(b *testing.B) {
		for b.Loop() {
			look(b)
		}
	})
	b.Run("one session more", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if _, err := m.Create(b.Context(), Local, "", Settings{}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			look(b)
		}
	})
}

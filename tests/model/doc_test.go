// Package model has sessions live at random, on disks that fail, in processes that are
// killed and machines whose power is cut, and compares what they do with a simple model
// of them: a line of points, each with all variables and files.
//
//	go test ./tests/model -run Model -model.rounds 50 -model.seed 7
//	go test ./tests/model -run AFault -faults.stride 1
package model

import (
	"io/fs"
	"path/filepath"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

const alice session.Owner = "alice"

// manager makes a Manager over a fake; both are closed at the test's end, when no
// interpreter lives.
func manager(t *testing.T, config session.Config, fake sandboxtest.FakeConfig) *session.Manager {
	t.Helper()
	backend := sandboxtest.NewFake(fake)
	config.Backends = []sandbox.Backend{backend}
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := backend.Live(); n != 0 {
			t.Errorf("%d interpreters live on", n)
		}
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// count is how many files are below a folder.
func count(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

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

	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

const alice session.Owner = "alice"

// manager makes a Manager over a fake.
func manager(t *testing.T, config session.Config, fake sandboxtest.FakeConfig) *session.Manager {
	t.Helper()
	return sessiontest.Open(t, config, sandboxtest.NewFake(fake))
}

// few reports whether rounds are few: with -short, and with the race detector, which makes each
// several times as long. make model has all of them.
func few() bool { return testing.Short() || raceEnabled }

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

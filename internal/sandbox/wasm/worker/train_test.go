//go:build native && profile

package worker

import (
	"crypto/rand"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"paddock/internal/sandbox/wasm/native"
)

// TestTrain executes the programs for guest/build/native.sh, which sets
// PADDOCK_TRAIN to what they are called, and writes to PADDOCK_PROFILE what of
// the guest they used. Clocks and random numbers are the same each time, and
// with them the profile.
func TestTrain(t *testing.T) {
	programs, err := filepath.Glob(os.Getenv("PADDOCK_TRAIN"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("no programs to train with (%v)", err)
	}
	rand.Reader = mathrand.NewChaCha8([32]byte{})
	synctest.Test(t, func(t *testing.T) {
		l, err := newLoader(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range programs {
			train(t, l, path)
		}
	})
	if err := native.WriteProfile(os.Getenv("PADDOCK_PROFILE")); err != nil {
		t.Fatal(err)
	}
}

func train(t *testing.T, l *loader, path string) {
	code, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.load(t.Context(), map[string]string{".py": "python", ".js": "javascript"}[filepath.Ext(path)], true)
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{program: p, log: io.Discard}
	in.connect(nil)
	defer in.drop()
	if err := in.open(false); err != nil {
		t.Fatal(err)
	}
	in.ends.Control.Begin(0)
	exit, _, err := in.runCode(string(code))
	if err != nil || exit.Error != nil {
		t.Fatalf("%s: %v %+v", path, err, exit.Error)
	}
}

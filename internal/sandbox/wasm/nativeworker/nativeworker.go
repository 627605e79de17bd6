// Package nativeworker carries the worker's program with the native engine
// inside of the paddock binary, where the binary was built with one: the
// paddock binary itself is pure Go, and this is the part that is not.
package nativeworker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/atomicfile"
)

// Digest is the program's SHA-256 in hex; empty when this binary carries none.
func Digest() string {
	digest, err := fs.ReadFile(dist, folder+"/worker.sha256")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(digest))
}

// Path is where in a cache folder the program lies.
func Path(cacheDir string) string {
	return filepath.Join(cacheDir, "native", "worker-"+Digest())
}

// errDamaged is for a file that is not the program.
var errDamaged = errors.New("it is damaged")

// Check reads the program in a cache folder and tells whether it is whole.
func Check(cacheDir string) error {
	f, err := os.Open(Path(cacheDir))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != Digest() {
		return fmt.Errorf("%s: %w", f.Name(), errDamaged)
	}
	return nil
}

// Install puts the program into a cache folder, whole or not at all, unless it
// is there. Any number of processes may do so at once.
func Install(cacheDir string) error {
	if Check(cacheDir) == nil {
		return nil
	}
	path := Path(cacheDir)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	p, err := atomicfile.Create(path, atomicfile.Options{Mode: 0o555, Prefix: ".worker-"})
	if err != nil {
		return err
	}
	defer p.Discard()
	if err := unpack(p); err != nil {
		return err
	}
	if err := p.Sync(); err != nil { // before the lock, as it may take long
		return err
	}
	// A process that was being started as it was written has it open until its own
	// program begins: it could not be executed as long as that ("text file busy").
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	return p.Commit()
}

func unpack(to io.Writer) error {
	packed, err := dist.Open(folder + "/worker.zst")
	if err != nil {
		return err
	}
	defer packed.Close()
	program, err := zstd.NewReader(packed)
	if err != nil {
		return err
	}
	defer program.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), program); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != Digest() {
		return fmt.Errorf("the carried worker: %w", errDamaged)
	}
	return nil
}

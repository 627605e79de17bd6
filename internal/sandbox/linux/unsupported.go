//go:build !linux || !(amd64 || arm64)

package linux

import (
	"context"
	"runtime"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Requested tells whether this process was started as a part of a box: never here.
func Requested([]string) bool { return false }

// Main is never called here.
func Main([]string) int { return 1 }

// Backend says that there are no boxes on this system.
type Backend struct{}

var _ sandbox.Backend = (*Backend)(nil)

// New makes a Backend that says so.
func New(Config) (*Backend, error) { return &Backend{}, nil }

// Name is "linux".
func (b *Backend) Name() string { return Name }

// FileOwner is this process's.
func (b *Backend) FileOwner() (uid, gid int) { return 0, 0 }

// SavedImage is never an image here.
func SavedImage([]byte) string { return "" }

func unsupported() *fault.Error {
	return fault.New(fault.Unsupported, "linux sandboxes need Linux on amd64 or arm64, and this is %s on %s", runtime.GOOS, runtime.GOARCH).
		WithHint("the isolation wasm works here")
}

// Probe says why there is nothing.
func (b *Backend) Probe(context.Context) sandbox.Probe {
	f := unsupported()
	return sandbox.Probe{Reason: f.Message, Hint: f.Hint}
}

// Start says so.
func (b *Backend) Start(context.Context, sandbox.Spec) (sandbox.Instance, error) {
	return nil, unsupported()
}

// Close does nothing.
func (b *Backend) Close() error { return nil }

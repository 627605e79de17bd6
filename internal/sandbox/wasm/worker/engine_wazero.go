//go:build !native

package worker

import "context"

// EngineName is the engine of workers that are this very binary.
const EngineName = wazeroName

// newEngine is the engine of this binary.
func newEngine(ctx context.Context, cacheDir string) (engine, error) { return newWazero(ctx, cacheDir) }

//go:build !native

package worker

import "context"

// newEngine is the engine of this binary.
func newEngine(ctx context.Context, cacheDir string) (engine, error) { return newWazero(ctx, cacheDir) }

//go:build !linux

package worker

import (
	"time"

	"paddock/internal/sandbox/wire/serve"
)

var began = time.Now()

// threadTime stands for the CPU time of the calling thread where the system
// does not tell it: the wall time.
func threadTime() time.Duration { return time.Since(began) }

// threadClock gives none: what is counted by it is bounded in wall time alone.
func threadClock() serve.Clock { return nil }

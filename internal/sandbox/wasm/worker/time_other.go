//go:build !linux

package worker

import "time"

var began = time.Now()

// threadTime stands for the CPU time of the calling thread where the system
// does not tell it: the wall time.
func threadTime() time.Duration { return time.Since(began) }

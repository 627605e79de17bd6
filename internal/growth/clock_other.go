//go:build !linux

package growth

import "time"

var start = time.Now()

// clock tells the time: these systems tell none of a thread.
func clock() time.Duration { return time.Since(start) }

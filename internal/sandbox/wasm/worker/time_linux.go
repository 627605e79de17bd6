package worker

import (
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/wire/serve"
)

// threadTime is the CPU time that the calling thread has used.
func threadTime() time.Duration { return readClock(unix.CLOCK_THREAD_CPUTIME_ID) }

// threadClock is threadTime of the thread that calls this, for any thread to read while
// that one lives.
func threadClock() serve.Clock {
	// The kernel's MAKE_THREAD_CPUCLOCK: the thread's number inverted, and
	// CPUCLOCK_PERTHREAD_MASK with CPUCLOCK_SCHED.
	id := int32(^unix.Gettid()<<3 | 4 | 2)
	return func() time.Duration { return readClock(id) }
}

func readClock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

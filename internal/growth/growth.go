// Package growth tells in a test whether work on foreign input grows faster than the
// input does.
package growth

import (
	"runtime"
	"testing"
	"time"
)

const (
	// times is how much larger the larger input is. Linear work takes as many times as
	// long, or half as many again where it sorts or leaves a cache; work that grows with
	// the square takes 64 times as long.
	times = 8
	// most is how many times as long it may take.
	most = 3 * times
	// again is how often each size is measured before the test has failed. What counts is
	// the best, which is what the work takes where nothing else has the processor.
	again = 6
	// brief is what takes too little time to be compared: the collector, caches and the
	// clock's ticks weigh as much. What grew with the square took seconds at the sizes of
	// the tests.
	brief = 150 * time.Millisecond
)

// Check fails the test where work on an input of a size takes disproportionately longer
// than on an eighth of it. input makes what is worked on, of about n of whatever grows;
// its time does not count. The size has to be one at which work that grows with the square
// would take a second or more: what takes less than 150 ms is not looked at.
//
// It compares times of one run with each other and knows none in seconds, so a slow
// machine, or the race detector, changes nothing; on Linux the times are the processor's
// for the calling thread, so a busy machine does not either. What work does in other
// goroutines does not count there.
func Check[T any](t testing.TB, name string, size int, input func(n int) T, work func(T)) {
	t.Helper()
	large := input(size)
	many := measure(large, work)
	if many < brief {
		return
	}
	small := input(size / times)
	few := measure(small, work)
	for range again {
		if many < brief || many <= most*few {
			return
		}
		few = min(few, measure(small, work))
		if many < 2*time.Second { // which is not somebody else's
			many = min(many, measure(large, work))
		}
	}
	t.Errorf("%s: %v for %d, and %v for %d: %d times as much takes %.0f times as long", name, few, size/times, many, size, times, float64(many)/float64(few))
}

func measure[T any](input T, work func(T)) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := clock()
	work(input)
	return clock() - began
}

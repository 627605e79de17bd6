package app

import (
	"os"
	"runtime"
	"runtime/debug"
)

// TuneForServing has Go's runtime work as a server of many clients needs it, unless the
// environment says how. The process is changed for good.
func TuneForServing() {
	relaxCollector()
	keepListening()
}

// relaxCollector trades memory for time, unless the environment says how: little lives
// here and much comes and goes, so that the heap may grow to five times the live data, up to
// what [newMemory] allows.
func relaxCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// spareThreads is how many goroutines may compute beyond one for each processor.
const spareThreads = 6

// keepListening has calls answered while others compute, unless the environment says how.
// With as many threads as processors Go looks at the network every 10 ms once all of them
// compute. With some to spare it looks at once, and the system, whose slices are shorter,
// divides the processors. On two of them the calls of an honest client took 4 to 10 times as
// long beside all attacks at once, and with six spare threads 1.5 to 1.8 times (make hostile).
func keepListening() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareThreads)
	}
}

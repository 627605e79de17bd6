package helper

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// What a job takes cannot be told from the size of its input: of a few hundred bytes of
// TypeScript, constants that are made of each other, a bundler makes terabytes. So the
// process itself is bounded: by the system where that can do it ([boundMemory]), and by
// a look at what it has.

// watchEvery is how often is looked: what a process can write meanwhile is some 10 MiB.
const watchEvery = 5 * time.Millisecond

// watchMemory ends the process when it has more memory than that, in bytes. It returns
// when done is closed.
func watchMemory(most uint64, done <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if memory() > most {
			fmt.Fprintf(os.Stderr, "more than %d MiB of memory\n", most>>20)
			os.Exit(exitMemory)
		}
	}
}

// memory is how much memory the process has, in bytes.
func memory() uint64 {
	has := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(has)
	return has[0].Value.Uint64() - has[1].Value.Uint64()
}

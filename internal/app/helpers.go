package app

import (
	"fmt"
	"os"
	"runtime/debug"

	"paddock/internal/helper"
	"paddock/internal/membudget"
	"paddock/internal/picture"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox/typescript"
	"paddock/internal/skill"
)

// Jobs are what helpers' processes of this program do (package helper).
func Jobs() []helper.Job {
	return []helper.Job{pkgproxy.Bundle, picture.Preview, skill.Pack, skill.Script, typescript.Job}
}

// newHelpers makes what starts helpers of this program.
func newHelpers() (*helper.Runner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding paddock's own program: %w", err)
	}
	return helper.NewRunner(self), nil
}

// What the server may hold for its callers, in bytes: all of them together, where the
// machine has eight times as much, and one of them. The largest result of a run takes
// 75 MiB until its client has read it.
const (
	callersMemory = 1 << 30
	ownerMemory   = callersMemory / 8
	// ownMemory is what the server needs in addition: its code's data, the index, the SDK's
	// sessions, what is kept for clients that come back.
	ownMemory = 512 << 20
	// unseen of that is what Go's collector does not count: the program's code and data.
	unseen = 128 << 20
)

// newMemory makes the budget of what the server holds for its callers, on a machine with
// so much memory (zero: unknown), and has Go's collector work harder before the server is
// larger than that and its own needs together, where GOMEMLIMIT says nothing else.
func newMemory(machine int64) *membudget.Budget {
	total := int64(callersMemory)
	if machine > 0 {
		total = min(total, machine/8)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(total + ownMemory - unseen)
	}
	return membudget.New(total, ownerMemory)
}

// Package helper does work on foreign input in a process of its own.
//
// What reads large input of uncertain cost (a bundler, a decoder of pictures, a
// parser of packs) can run out of stack or of memory, which ends a process of Go's
// whatever it does, or take minutes. A helper is a process of the same binary that
// does one such [Job] and ends: its crash, its memory and its time cost the one call
// that asked for it. It starts with an empty environment and three pipes, and puts up
// the walls of package confine before it reads the input: it opens no files but those
// below the folders that the call names, makes no connections, and starts no programs.
//
// A process costs some 20 ms; work whose cost can be told beforehand stays in the
// server. Work that is short and comes often is done by a process that stays for its
// owner's next call ([Job.Keep]); its crash costs the call that it was doing.
package helper

import (
	"context"
	"io"
	"time"
)

// role is the first argument of a helper's process.
const role = "helper"

// Job is one kind of work. It has to be given to [Main] as well as to [Runner.Run].
type Job struct {
	// Name is unique among the jobs of a program.
	Name string
	// Run reads the input and writes the result. A fault that it returns is what the
	// caller of [Runner.Run] gets; of any other error the caller learns that the work
	// failed.
	Run func(ctx context.Context, in io.Reader, out io.Writer) error
	// Memory bounds what the process may have, in bytes; zero: 512 MiB.
	Memory int64
	// Time bounds the process; zero: 30 seconds.
	Time time.Duration
	// MaxOutput bounds the result, in bytes; zero: 16 MiB.
	MaxOutput int64
	// Keep is how long a process stays for the next call of the same owner after one;
	// zero: it ends with its call. The calls of a job that is kept name no folders, and
	// its Run keeps nothing of one call for the next.
	Keep time.Duration
	// Doing says what the job does, for messages: "reading the picture".
	Doing string
}

func (j Job) withDefaults() Job {
	if j.Memory == 0 {
		j.Memory = 512 << 20
	}
	if j.Time == 0 {
		j.Time = 30 * time.Second
	}
	if j.MaxOutput == 0 {
		j.MaxOutput = 16 << 20
	}
	if j.Doing == "" {
		j.Doing = j.Name
	}
	return j
}

// setup is the first line of a helper's standard input.
type setup struct {
	Readable []string `json:"readable,omitempty"`
	UID      int      `json:"uid,omitempty"`
	GID      int      `json:"gid,omitempty"`
	Parent   int      `json:"parent"`
}

// Exit codes of the process. A crash of Go's ends with 2.
const (
	exitDone   = 0
	exitFault  = 10 // the fault stands on standard error, as JSON
	exitFailed = 11 // what failed stands on standard error, for the log
	exitMemory = 12
)

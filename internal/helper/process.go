package helper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"paddock/internal/fault"
	"paddock/internal/sandbox/wasm/confine"
)

// Requested tells whether a command line is a helper's.
func Requested(args []string) bool { return len(args) == 3 && args[1] == role }

// Main is the helper's process, of a program that has these jobs. It gives the exit
// code.
func Main(args []string, jobs ...Job) int {
	for _, job := range jobs {
		if job.Name == args[2] {
			return serve(job.withDefaults())
		}
	}
	fmt.Fprintln(os.Stderr, "there is no such job")
	return exitFailed
}

// maxStack is what one goroutine may have: a parser that calls itself without end is
// ended by it, long before memory is.
const maxStack = 256 << 20

// serve does one job, confined.
func serve(job Job) int {
	debug.SetMaxStack(int(min(maxStack, job.Memory/2)))
	debug.SetMemoryLimit(job.Memory / 4 * 3)
	in := bufio.NewReader(os.Stdin)
	if err := prepare(job, in); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	if job.Keep > 0 {
		if err := serveCalls(job, in, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitFailed
		}
		return exitDone
	}
	go watchMemory(uint64(job.Memory), nil) // until the process ends
	out := bufio.NewWriter(os.Stdout)
	err := job.Run(context.Background(), in, out)
	if err == nil {
		err = out.Flush()
	}
	code, said := codeOf(err)
	_, _ = os.Stderr.Write(said)
	return code
}

// codeOf gives a process's exit code after a job's error, and what it says of that.
func codeOf(err error) (code int, said []byte) {
	if err == nil {
		return exitDone, nil
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		if text, err := json.Marshal(fault.ProblemOf(f)); err == nil {
			return exitFault, text
		}
	}
	return exitFailed, []byte(err.Error())
}

// prepare reads how the process is set up, and puts its walls up.
func prepare(job Job, in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("reading the set-up: %w", err)
	}
	var s setup
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("reading the set-up: %w", err)
	}
	if err := boundMemory(uint64(job.Memory)); err != nil {
		return err
	}
	stepBack()
	_, err = confine.Apply(confine.Policy{Readable: s.Readable, UID: s.UID, GID: s.GID, Parent: s.Parent, MaxOpenFiles: 256})
	return err
}

// Package cli is paddock's command line. It reads flags, files and the environment, asks
// package app for the parts that a command needs, and prints what came of it.
//
// The command "paddock a b" is in cmd_a_b.go, or with its family in cmd_a.go. What commands
// share is in the other files: load.go reads the configuration, print.go prints, owners.go
// finds the sessions that are meant, runner.go runs one program.
//
// Results go to stdout and what people should know to stderr. Each command's
// help lists its exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os/signal"
	"syscall"

	"paddock/internal/app"
	"paddock/internal/config"
	"paddock/internal/fault"
)

// The exit codes of every command but run, which has its own.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the command line args, without the program's name, and gives the
// exit code. It reads the process's environment and takes its signals: the
// first interrupt ends what runs, gently, and the second the process.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // net/http quotes there what a host sends unasked, which may be a secret
	cl := &cli{stdin: stdin, stdout: stdout, stderr: stderr, Env: app.Env{NewBackends: app.NewBackends}}
	return cl.main(ctx, args)
}

// cli is one run of the command line: what all commands share. Each command, with its
// subcommands, has a type of its own in cmd_<name>.go.
type cli struct {
	app.Env // load fills it in

	stdin          io.Reader
	stdout, stderr io.Writer
	places         places
}

// exit is an error that has been reported already: only its code is left.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// errUsage is the cause of a fault in the command line itself.
var errUsage = errors.New("wrong usage")

func usage(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, format, args...).WithCause(errUsage)
}

func (cl *cli) main(ctx context.Context, args []string) (code int) {
	cl.Log, cl.Version = slog.New(slog.DiscardHandler), build().Version
	root := cl.root()
	args, running := endFlags(root, args)
	defer func() {
		if v := recover(); v != nil {
			cl.panicked(v)
			code = ownFailure(running, nil)
		}
	}()
	ctx, stop := signal.NotifyContext(ctx, terminationSignals()...)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal does what it does without us
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var done exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &done):
		return int(done)
	case isBrokenPipe(err):
		return exitNoReader
	}
	cl.report(err)
	return ownFailure(running, err)
}

// isBrokenPipe reports whether the reader of what is printed has gone, as head does. Other
// broken connections are in faults.
func isBrokenPipe(err error) bool {
	var f *fault.Error
	return errors.Is(err, syscall.EPIPE) && !errors.As(err, &f)
}

// ownFailure is the exit code of what went wrong in paddock, not in a program.
func ownFailure(running bool, err error) int {
	switch {
	case running:
		return exitRunFailed
	case isUsageError(err):
		return exitUsage
	}
	return exitFailed
}

// isUsageError reports whether there is a mistake in the command line itself.
func isUsageError(err error) bool { return errors.Is(err, errUsage) || errors.Is(err, config.ErrFlag) }

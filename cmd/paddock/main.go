// Paddock gives any MCP client a safe place to run code.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"paddock/internal/cli"
	"paddock/internal/sandbox/wasm/worker"
)

func main() {
	if worker.Requested(os.Args) {
		// A terminal's Ctrl-C and a service manager's stop reach the worker as
		// well; it ends when the server hangs up, which lets programs end first.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(worker.Main(os.Args))
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

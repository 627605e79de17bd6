// Paddock gives any MCP client a safe place to run code.
package main

import (
	"context"
	"os"

	_ "paddock/guest/dist" // without which there is nothing to run
	"paddock/internal/app"
	"paddock/internal/cli"
	"paddock/internal/helper"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/wasm/worker"
)

func main() {
	// Parts of a box, and its first program: before anything else is done.
	if linux.Requested(os.Args) {
		os.Exit(linux.Main(os.Args))
	}
	if agent.Requested(os.Args) {
		os.Exit(agent.Main(os.Args))
	}
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, app.Jobs()...))
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

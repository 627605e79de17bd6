// Paddock gives any MCP client a safe place to run code.
package main

import (
	"context"
	"os"

	"paddock/internal/cli"
	"paddock/internal/sandbox/wasm/worker"
)

func main() {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

//go:build native

// Paddock-worker is the process in which guests run, with the native engine
// in it. The paddock binary carries it (package nativeworker) and starts it.
package main

import (
	"os"

	"paddock/internal/sandbox/wasm/worker"
)

func main() { os.Exit(worker.Main(os.Args)) }

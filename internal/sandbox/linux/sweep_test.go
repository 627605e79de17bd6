//go:build linux && (amd64 || arm64)

package linux

// serverRole is the name (argv[0]) of the test binary as a server that will be
// killed: its argument is the folder for boxes.
const serverRole = "paddock-test-server"

func serverMain(args []string) int { return 0 }

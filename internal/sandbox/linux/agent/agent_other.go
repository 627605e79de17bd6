//go:build !linux

package agent

import (
	"fmt"
	"os"
)

// Main says that there are no boxes on this system.
func Main([]string) int {
	fmt.Fprintln(os.Stderr, "paddock: agent: there are no Linux sandboxes on this system")
	return 1
}

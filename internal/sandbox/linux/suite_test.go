//go:build linux && (amd64 || arm64)

package linux

import (
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

func TestTheBackendKeepsTheContract(t *testing.T) {
	newBackend(t) // or the test is skipped
	sandboxtest.Run(t, sandboxtest.Suite{
		New:     func(t *testing.T, _ string) sandbox.Backend { return openBackend(t, Config{}) },
		Machine: true,
		Programs: map[string]sandboxtest.Programs{
			"python":     sandboxtest.Python(),
			"javascript": sandboxtest.JavaScript(),
			"bash":       sandboxtest.Bash(),
		},
	})
}

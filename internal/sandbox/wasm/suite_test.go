package wasm_test

import (
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

func TestTheBackendKeepsTheContract(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Suite{
		New: func(t *testing.T, owners string) sandbox.Backend { return openBackend(t, owners) },
		Programs: map[string]sandboxtest.Programs{
			"python":     sandboxtest.Python(),
			"javascript": sandboxtest.JavaScript(),
		},
	})
}

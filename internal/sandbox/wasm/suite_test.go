package wasm_test

import (
	"fmt"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
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

func TestTheNativeEngineIsInForce(t *testing.T) {
	if *engine == wasm.Wazero {
		t.Skip("another engine is asked for")
	}
	p := newBackend(t, t.TempDir()).Probe(t.Context())
	sandboxtest.Require(t, "native", p.Engine == wasm.Native, fmt.Sprint(p.Protections[0]))
}

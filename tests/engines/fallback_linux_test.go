package engines

import (
	"os/exec"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// Where a process may not have the address space that the native engine
// reserves, programs run all the same, and the doctor says in what.
func TestALimitedAddressSpaceMeansWazero(t *testing.T) {
	for _, kilobytes := range []string{"14000000", "4000000"} {
		t.Run(kilobytes, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "bash", "-c", `ulimit -v "$1"; "$2" doctor; "$2" run -c 'print(6 * 7)'`, "bash", kilobytes, sandboxtest.Binary(t))
			cmd.Env = append(cmd.Environ(), "PADDOCK_STATE_DIR="+t.TempDir(), "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t))
			out, err := cmd.CombinedOutput()
			for _, want := range []string{"engine wazero", "no room for the native engine's address space", "\n42\n"} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Fatalf("%v, and it does not say %q:\n%s", err, want, out)
				}
			}
		})
	}
}

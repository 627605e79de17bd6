package docs

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/pkgproxy/pkgproxytest"
)

// The calls of docs/packages.md, with real packages from a folder.
func TestTheCallsOfThePageAboutPackages(t *testing.T) {
	wheels := t.TempDir()
	for _, d := range pkgproxytest.Real(t) {
		if err := os.WriteFile(filepath.Join(wheels, d.Name), d.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PADDOCK_PACKAGES_PYPI_INDEX", wheels)
	makeCalls(t, "../../docs/packages.md", 3)
}

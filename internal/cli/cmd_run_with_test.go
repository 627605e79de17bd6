package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/app"
	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/internal/sandbox/sandboxtest"
)

func TestListsOfPackagesAreTakenApart(t *testing.T) {
	for list, want := range map[string][]string{
		"requests,rich":                    {"requests", "rich"},
		"requests, rich,":                  {"requests", "rich"},
		"httpx[http2,socks]>=0.27,<1, zod": {"httpx[http2,socks]>=0.27,<1", "zod"},
		"attrs (>=20,!=21), six":           {"attrs (>=20,!=21)", "six"},
		"@scope/name@1.2":                  {"@scope/name@1.2"},
	} {
		if got := splitPackages([]string{list}); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
	if got, want := byKind([]string{"attrs", "npm:zod", "pypi:six"}, true), []string{"pypi:attrs\npypi:six", "npm:zod"}; !slices.Equal(got, want) {
		t.Errorf("by kind: %q, want %q", got, want)
	}
}

// TestAProgramGetsItsPackages installs from a folder: by --with, by a program's own metadata,
// and in a session that stays.
func TestAProgramGetsItsPackages(t *testing.T) {
	there, reason := guests(t)
	sandboxtest.Require(t, "wasm", slices.Contains(there, "python"), reason)
	dir := t.TempDir()
	wheel := pkgproxytest.Simple(t, "house", "1.0")
	if err := os.WriteFile(filepath.Join(dir, wheel.Name), wheel.Data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PADDOCK_PACKAGES_PYPI_INDEX", dir)
	t.Setenv("PADDOCK_CACHE_DIR", sandboxtest.PreparedCache(t))
	t.Setenv("PADDOCK_STATE_DIR", t.TempDir())
	const code = "from importlib.metadata import version\nprint(version('house'))\n"
	r := run(t, app.NewBackends, "run", "--with", "house", "-c", code)
	if r.code != 0 || r.stdout != "1.0\n" {
		t.Errorf("--with: %d, %q: %s", r.code, r.stdout, r.stderr)
	}
	r = run(t, app.NewBackends, "run", "-c", "# /// script\n# dependencies = ['house<2']\n# requires-python = '>=3.11'\n# ///\n"+code)
	if r.code != 0 || r.stdout != "1.0\n" {
		t.Errorf("metadata: %d, %q: %s", r.code, r.stdout, r.stderr)
	}
	r = run(t, app.NewBackends, "run", "-c", "# /// script\n# requires-python = '<3'\n# ///\nprint(1)")
	if r.code != exitRunFailed || !strings.Contains(r.stderr, "the program needs Python <3 (requires-python), and this one is 3.") {
		t.Errorf("another Python: %d, %q: %s", r.code, r.stdout, r.stderr)
	}
	r = run(t, app.NewBackends, "run", "--keep", "-c", "1")
	_, id, _ := strings.Cut(strings.TrimSpace(r.stderr), "paddock: session: ")
	for _, want := range []string{"PACKAGE  VERSION\nhouse    1.0\n", "all of it is installed already\n"} {
		if r = run(t, app.NewBackends, "session", "install", id, "house"); r.code != 0 || r.stdout != want {
			t.Errorf("session install: %d, %q: %s", r.code, r.stdout, r.stderr)
		}
	}
	if r = run(t, app.NewBackends, "run", "--session", id, "-c", code); r.code != 0 || r.stdout != "1.0\n" {
		t.Errorf("in the session: %d, %q: %s", r.code, r.stdout, r.stderr)
	}
}

package packages_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/packages"
)

func names(all []packages.Installed) (out []string) {
	for _, one := range all {
		out = append(out, one.Name+"@"+one.Version)
	}
	return out
}

// Real packages from npm become modules, with what they depend on.
func TestRealPackagesBecomeModules(t *testing.T) {
	p := npmOf(t, newRegistry(t).WithReal())
	for _, wanted := range [][]string{{"ajv", "ajv-formats"}, {"zod"}, {"react", "react-reconciler"}, {"chalk"}, {"yaml"}, {"qs"}, {"minimatch"}, {"jszip"}, {"mime-types"}, {"string-width"}} {
		made, err := p.JavaScript(t.Context(), packages.ScriptInstall{Wanted: wanted})
		if err != nil {
			t.Errorf("%s: %v (%s)", wanted, err, fault.Of(err).Hint)
			continue
		}
		t.Log(wanted, len(made.Files), names(made.Installed), made.Notes)
		if dir := os.Getenv("PADDOCK_TEST_MODULES"); dir != "" {
			write(t, filepath.Join(dir, wanted[0]), made)
		}
		if made.Files[packages.Modules+"/"+wanted[0]+"/index.js"] == nil {
			t.Errorf("%s: no module in %d files", wanted, len(made.Files))
		}
	}
}

func write(t *testing.T, dir string, made *packages.Scripts) {
	for name, data := range made.Files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What needs more than the guest has says so, and names where it works.
func TestPackagesThatTheGuestCannotRunSaySo(t *testing.T) {
	p := npmOf(t, newRegistry(t).WithReal())
	for name, refused := range map[string]bool{"undici": false, "lightningcss": false, "rolldown": true} {
		made, err := p.JavaScript(t.Context(), packages.ScriptInstall{Wanted: []string{name}})
		said := ""
		if f := fault.Of(err); f != nil {
			said = f.Message + " " + f.Hint
		} else {
			said = strings.Join(made.Notes, "\n")
		}
		if (err != nil) != refused || !strings.Contains(said, `isolation "linux"`) || !strings.Contains(said, name) {
			t.Errorf("%s: %v %s", name, err, said)
		}
	}
	if _, err := p.JavaScript(t.Context(), packages.ScriptInstall{Wanted: []string{"@napi-rs/nothing"}}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what is not there: %v", err)
	}
}

func has(all []packages.Installed, want ...string) bool {
	return slices.Equal(names(all), want)
}

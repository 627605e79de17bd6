package pkgproxy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
)

func names(all []pkgproxy.Installed) (out []string) {
	for _, one := range all {
		out = append(out, one.Name+"@"+one.Version)
	}
	return out
}

// Real packages from npm become modules, with what they depend on.
func TestRealPackagesBecomeModules(t *testing.T) {
	p := npmOf(t, newRegistry(t).WithReal())
	for _, wanted := range [][]string{{"ajv", "ajv-formats"}, {"zod"}, {"react", "react-reconciler"}, {"chalk"}, {"yaml"}, {"qs"}, {"minimatch"}, {"jszip"}, {"mime-types"}, {"string-width"}} {
		made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: wanted})
		if err != nil {
			t.Errorf("%s: %v (%s)", wanted, err, fault.Of(err).Hint)
			continue
		}
		t.Log(wanted, len(made.Files), names(made.Installed), made.Notes)
		if dir := os.Getenv("PADDOCK_TEST_MODULES"); dir != "" {
			write(t, filepath.Join(dir, wanted[0]), made)
		}
		if made.Files[pkgproxy.ModulesTree] == nil {
			t.Error("made.Files[pkgproxy.ModulesTree]: got nil, want one")
		}
		if packOf(made, wanted[0]) == nil {
			t.Error("packOf(made, wanted[0]): got nil, want one")
		}
	}
}

// packOf is the pack of a package, of any version.
func packOf(made *pkgproxy.Scripts, name string) []byte {
	for at, data := range made.Files {
		if strings.HasPrefix(at, pkgproxy.ModulesPacks+"/"+strings.ReplaceAll(name, "/", "+")+"@") {
			return data
		}
	}
	return nil
}

func write(t *testing.T, dir string, made *pkgproxy.Scripts) {
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

// What has parts for one kind of machine alone says so when it is installed, and where it
// works; what else it needs, when that is used (TestModulesThatNeedMoreFailWhenTheyAreUsed).
func TestPackagesWithPartsForMachinesSaySo(t *testing.T) {
	p := npmOf(t, newRegistry(t).WithReal())
	for _, name := range []string{"lightningcss", "rolldown"} {
		made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{name}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if said := strings.Join(made.Notes, "\n"); !strings.Contains(said, `isolation "linux"`) {
			t.Errorf(`strings.Join(made.Notes, "\n"): got %q, want %q in it`, said, `isolation "linux"`)
		} else if !strings.Contains(said, name) {
			t.Errorf(`strings.Join(made.Notes, "\n"): got %q, want %q in it`, said, name)
		}
	}
	if _, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"@napi-rs/nothing"}}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what is not there: %v", err)
	}
}

func has(all []pkgproxy.Installed, want ...string) bool {
	return slices.Equal(names(all), want)
}

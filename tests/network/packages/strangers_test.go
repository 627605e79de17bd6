package packages

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// strangers has the tables run whole, and their results written (make strangers); only is
// for those who mend one.
var (
	strangers = flag.String("strangers", "", "run the whole tables, and write this file's section about them")
	only      = flag.String("only", "", "names of packages, with commas between")
)

// npmRegistry is the registry that this machine's npm is set up with.
func npmRegistry(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	sandboxtest.Require(t, "node", err == nil, "npm is not installed")
	out, err := exec.CommandContext(t.Context(), npm, "config", "get", "registry").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// The npm packages that programs depend on most do in WebAssembly what their documentation
// says: a sample of them in each run, all with -strangers.
func TestNPMPackagesOfStrangers(t *testing.T) {
	paddocktest.Require(t, "wasm")
	h := open(t, t.TempDir(), nil, nil, "PADDOCK_PACKAGES_NPM_INDEX="+npmRegistry(t))
	var rows []string
	for _, u := range npmUses {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), u.name) || *only == "" && *strangers == "" && !slices.Contains(sampled, u.name) {
			continue
		}
		t.Run(strings.ReplaceAll(u.name, "/", "+"), func(t *testing.T) {
			said, ok := h.try("javascript", "wasm", u)
			if !ok {
				t.Errorf("%s\n%s", u.code, said)
			}
			rows = append(rows, row(u, said, ok))
		})
	}
	if *strangers != "" && *only == "" {
		paddocktest.WriteSection(t, *strangers, "npm packages in WebAssembly", []string{"package", "version", "one use of it"}, rows)
	}
}

// pypi is what has paddock use the index that this machine's pip is set up with, or pip's own.
// Its files may be at another host, which is not public where a mirror replaces it.
func pypi(t *testing.T) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	sandboxtest.Require(t, "linux", err == nil, "Python is not installed")
	out, err := exec.CommandContext(t.Context(), python, "-c", `
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
c = Configuration(isolated=False)
c.load()
set = dict(c.items())
print(set.get(":env:.index-url") or set.get("global.index-url") or PyPI.simple_url)`).Output()
	if err != nil {
		t.Fatal(err)
	}
	index := strings.TrimRight(strings.TrimSpace(string(out)), "/")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, index+"/six/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.pypi.simple.v1+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct{ Files []struct{ URL string } }
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatalf("the index has no files of six: got error %v, want none", err)
	} else if len(page.Files) == 0 {
		t.Fatal("the index has no files of six: page.Files is empty, want some")
	}
	file, err := resp.Request.URL.Parse(page.Files[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PADDOCK_PACKAGES_PYPI_INDEX=" + index, "PADDOCK_PACKAGES_FILES=" + file.Hostname() + "!private"}
}

// The Python packages that models reach for do in both isolations what their documentation
// says, or say at once where they do: a sample of them in each run, all with -strangers.
func TestPythonPackagesOfStrangers(t *testing.T) {
	paddocktest.Require(t, "wasm")
	paddocktest.Require(t, "linux")
	h := open(t, t.TempDir(), nil, nil, pypi(t)...)
	var rows []string
	for _, u := range pypiUses {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), u.name) || *only == "" && *strangers == "" && !slices.Contains(pypiSampled, u.name) {
			continue
		}
		t.Run(strings.ReplaceAll(u.name, "/", "+"), func(t *testing.T) {
			inWASM := u.use
			inWASM.prints = cmp.Or(u.wasm, u.prints)
			said, ok := h.try("python", "wasm", inWASM)
			if !ok {
				t.Errorf("wasm: %s\n%s", u.code, said)
			}
			line := row(inWASM, said, ok)
			if said, ok = h.try("python", "linux", u.use); !ok {
				t.Errorf("linux: %s\n%s", u.code, said)
			}
			_, version, _ := strings.Cut(row(u.use, said, ok), " | ")
			version, result, _ := strings.Cut(version, " | ")
			name, _, _ := strings.Cut(line, " | ")
			rows = append(rows, name+" | "+version+" | "+strings.TrimSuffix(line[strings.LastIndex(line, " | ")+3:], " |")+" | "+result)
		})
	}
	if *strangers != "" && *only == "" {
		paddocktest.WriteSection(t, *strangers, "Python packages", []string{"package", "version", "isolation `wasm`", "isolation `linux`"}, rows)
	}
}

// try installs a package in a session of its own, and uses it. What it says is what it
// installed, or what went wrong.
func (h *client) try(language, isolation string, u use) (said string, ok bool) {
	id := h.create(language, isolation)
	defer h.call("destroy_session", map[string]any{"session_id": id}, nil)
	var i installation
	if failed := h.call("install_package", map[string]any{"session_id": id, "package_name": strings.ReplaceAll(u.name, " ", "\n")}, &i); failed != nil {
		if refusal, is := strings.CutPrefix(u.prints, "-"); is && strings.Contains(failed.Message+failed.Hint, refusal) {
			return failed.Message, true
		}
		return "install: " + failed.Message + "; " + failed.Hint, false
	}
	var e struct {
		Stdout, Stderr string
		Success        bool
	}
	if failed := h.call("execute_code", map[string]any{"session_id": id, "language": language, "code": u.code, "timeout": 120}, &e); failed != nil {
		return "run: " + failed.Message, false
	}
	if want := strings.TrimLeft(u.prints, "!?"); want != u.prints {
		if e.Success || !strings.Contains(e.Stderr, want) {
			return fmt.Sprintf("prints %q and says %q", e.Stdout, e.Stderr), false
		}
		return i.names(), true
	}
	if !e.Success || strings.TrimSpace(e.Stdout) != u.prints {
		return fmt.Sprintf("prints %q, want %q: %s", e.Stdout, u.prints, e.Stderr), false
	}
	return i.names(), true
}

// row is a line of the document.
func row(u use, said string, ok bool) string {
	name, _, _ := strings.Cut(u.name, " ")
	bare := name
	if at := strings.LastIndexByte(name, '@'); at > 0 {
		bare = name[:at]
	}
	version := ""
	for one := range strings.FieldsSeq(said) {
		if v, found := strings.CutPrefix(one, bare+"@"); found {
			version = v
		}
	}
	result := "works"
	if strings.HasPrefix(u.prints, "!") {
		result = "works in part; the rest says that it needs isolation `linux`"
	}
	if known, is := strings.CutPrefix(u.prints, "?"); is {
		result = "does not: it needs what is not there (`" + known + "`)"
	}
	if strings.HasPrefix(u.prints, "-") {
		result = "refused when it is installed: it needs isolation `linux`"
	}
	if !ok {
		line, _, _ := strings.Cut(said[max(0, strings.LastIndex(said, `": `)+3):], "\n")
		result = "does not: " + strings.ReplaceAll(line, "|", "\\|")
	}
	return fmt.Sprintf("| `%s` | %s | %s |", u.name, version, result)
}

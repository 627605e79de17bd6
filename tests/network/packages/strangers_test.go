package packages

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		writeSection(t, *strangers, "npm packages in WebAssembly", rows)
	}
}

// try installs a package in a session of its own, and uses it. What it says is what it
// installed, or what went wrong.
func (h *house) try(language, isolation string, u use) (said string, ok bool) {
	id := h.create(language, isolation)
	defer h.call("destroy_session", map[string]any{"session_id": id}, nil)
	var i installation
	if failed := h.call("install_package", map[string]any{"session_id": id, "package_name": strings.ReplaceAll(u.name, " ", "\n")}, &i); failed != nil {
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
	if !ok {
		line, _, _ := strings.Cut(said[max(0, strings.LastIndex(said, `": `)+3):], "\n")
		result = "does not: " + strings.ReplaceAll(line, "|", "\\|")
	}
	return fmt.Sprintf("| `%s` | %s | %s |", u.name, version, result)
}

// writeSection puts a table below its title into a document.
func writeSection(t *testing.T, file, title string, rows []string) {
	t.Helper()
	if !filepath.IsAbs(file) {
		t.Fatalf("%s is no absolute path", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "## "+title+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, title)
	}
	after := ""
	if at := strings.Index(rest, "\n## "); at >= 0 {
		after = rest[at:]
	}
	intro, _, _ := strings.Cut(rest, "\n|")
	made := before + "## " + title + "\n" + strings.TrimRight(intro, "\n") + "\n\n| package | version | one use of it |\n|---|---|---|\n" + strings.Join(rows, "\n") + "\n" + after
	if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
		t.Fatal(err)
	}
}

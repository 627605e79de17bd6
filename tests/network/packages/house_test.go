// Package packages proves with the built paddock, over MCP, that packages are installed
// in sessions: from a real index and a real registry on loopback, with real packages and
// hostile ones beside them.
package packages

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/packages/packagestest"
	"paddock/internal/sandbox/sandboxtest"
)

// patience bounds whatever a test waits for.
const patience = 4 * time.Minute

// house is a paddock that serves over stdio, and a model's end of the connection to it.
type house struct {
	*sdk.ClientSession
	t *testing.T
}

// open starts a paddock whose sessions have packages of an index and a registry; nil:
// none. More variables may follow.
func open(t *testing.T, state string, x *packagestest.Index, r *packagestest.Registry, env ...string) *house {
	t.Helper()
	for _, dir := range []string{filepath.Dir(state), state} { // for whom guests run as
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), "mcp", "--tools", "core,files,history")
	cmd.Env, cmd.Stderr = append(environment(t, state), env...), os.Stderr
	if x != nil {
		cmd.Env = append(cmd.Env, "PADDOCK_PACKAGES_PYPI_INDEX="+x.Server.URL+"/simple")
	}
	if r != nil {
		cmd.Env = append(cmd.Env, "PADDOCK_PACKAGES_NPM_INDEX="+r.Server.URL)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests-of-packages", Version: "1"}, nil).
		Connect(t.Context(), &sdk.CommandTransport{Command: cmd, TerminateDuration: patience}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // a test that ends one looks at its error
	return &house{c, t}
}

func environment(t *testing.T, state string) []string {
	cache := sandboxtest.PreparedCache(t)
	return append(os.Environ(), "PADDOCK_STATE_DIR="+state, "PADDOCK_CACHE_DIR="+cache, "PADDOCK_PACKAGES_MACHINE=false", "PADDOCK_CONFIG=", "PADDOCK_SANDBOX_POOL=0")
}

// problem is why a tool failed.
type problem struct{ Code, Message, Hint string }

// call calls a tool, and reads what it answers into out; the problem is the tool's.
func (h *house) call(tool string, args map[string]any, out any) *problem {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	res, err := h.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		h.t.Fatalf("%s: %v", tool, err)
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.IsError {
		var failed struct{ Error problem }
		if err := json.Unmarshal(text, &failed); err != nil {
			h.t.Fatalf("%s gives %s: %v", tool, text, err)
		}
		return &failed.Error
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		h.t.Fatalf("%s gives %s: %v", tool, text, err)
	}
	return nil
}

// must is call where the tool has to work.
func (h *house) must(tool string, args map[string]any, out any) {
	h.t.Helper()
	if failed := h.call(tool, args, out); failed != nil {
		h.t.Fatalf("%s %v: %+v", tool, args, *failed)
	}
}

// create makes a session.
func (h *house) create(language, isolation string) string {
	h.t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	h.must("create_session", map[string]any{"language": language, "isolation": isolation}, &made)
	return made.ID
}

// installation is what install_package answers.
type installation struct {
	Installed        []struct{ Name, Version string }
	AlreadySatisfied bool `json:"already_satisfied"`
	Notes            []string
}

// names are the installed packages, as NAME@VERSION.
func (i installation) names() string {
	var all []string
	for _, one := range i.Installed {
		all = append(all, one.Name+"@"+one.Version)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// install has install_package install something, which has to work.
func (h *house) install(id, what string) (i installation) {
	h.t.Helper()
	h.must("install_package", map[string]any{"session_id": id, "package_name": what}, &i)
	return i
}

// refuses has install_package refuse something: with a code, and these words.
func (h *house) refuses(id, what, code string, words ...string) {
	h.t.Helper()
	var i installation
	failed := h.call("install_package", map[string]any{"session_id": id, "package_name": what}, &i)
	if failed == nil {
		h.t.Errorf("%s is installed: %+v", what, i)
		return
	}
	said := failed.Message + " | " + failed.Hint
	if failed.Code != code {
		h.t.Errorf("%s is %s, want %s: %s", what, failed.Code, code, said)
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			h.t.Errorf("of %s it says nothing of %q: %s", what, word, said)
		}
	}
}

// prints runs a program, which has to print that.
func (h *house) prints(id, language, code, want string) {
	h.t.Helper()
	var e struct {
		Stdout, Stderr string
		Success        bool
		Error          any
	}
	h.must("execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": 120}, &e)
	if !e.Success || strings.TrimSpace(e.Stdout) != want {
		h.t.Errorf("%s\nprints %q, want %q; stderr %s; error %v", code, e.Stdout, want, e.Stderr, e.Error)
	}
}

// hints runs a program that fails, and whose error's hint says this.
func (h *house) hints(id, language, code, want string) {
	h.t.Helper()
	var e struct{ Error struct{ Hint string } }
	h.must("execute_code", map[string]any{"session_id": id, "language": language, "code": code}, &e)
	if !strings.Contains(e.Error.Hint, want) {
		h.t.Errorf("%s\ngives the hint %q", code, e.Error.Hint)
	}
}

// info is what get_workspace_info says of packages and files.
func (h *house) info(id string) (packages []string, files []string) {
	h.t.Helper()
	var i struct {
		Packages []string
		Files    []struct{ Path string }
	}
	h.must("get_workspace_info", map[string]any{"session_id": id}, &i)
	for _, f := range i.Files {
		files = append(files, f.Path)
	}
	return i.Packages, files
}

// require skips a test whose isolation there is not.
func require(t *testing.T, isolation string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "run", "--isolation", isolation, "-c", "1")
	cmd.Env = environment(t, t.TempDir())
	out, err := cmd.CombinedOutput()
	sandboxtest.Require(t, isolation, err == nil, string(out))
}

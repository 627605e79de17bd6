// Package packages proves with the built paddock, over MCP, that packages are installed
// in sessions: from a real index and a real registry on loopback, with real packages and
// hostile ones beside them.
package packages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/tests/paddocktest"
)

// client is a paddock that serves over stdio, and a model's end of the connection to it.
type client struct {
	*sdk.ClientSession
	t *testing.T
}

// open starts a paddock whose sessions have packages of an index and a registry; nil:
// none. More variables may follow.
func open(t *testing.T, state string, x *pkgproxytest.Index, r *pkgproxytest.Registry, env ...string) *client {
	t.Helper()
	paddocktest.Admit(t, filepath.Dir(state), state)
	if x != nil {
		env = append(env, "PADDOCK_PACKAGES_PYPI_INDEX="+x.Server.URL+"/simple")
	}
	if r != nil {
		env = append(env, "PADDOCK_PACKAGES_NPM_INDEX="+r.Server.URL)
	}
	c := paddocktest.Connect(t, paddocktest.Environment(t, state, env...), os.Stderr, "--tools", "core,files,history")
	return &client{c.ClientSession, t}
}

// call calls a tool, and reads what it answers into out; the failure is the tool's.
func (h *client) call(tool string, args map[string]any, out any) *paddocktest.Failure {
	h.t.Helper()
	_, failed := paddocktest.Call(h.t, h.ClientSession, tool, args, out)
	return failed
}

// must is call where the tool has to work.
func (h *client) must(tool string, args map[string]any, out any) {
	h.t.Helper()
	if failed := h.call(tool, args, out); failed != nil {
		h.t.Fatalf("%s %v: %+v", tool, args, *failed)
	}
}

// create makes a session.
func (h *client) create(language, isolation string) string {
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
func (h *client) install(id, what string) (i installation) {
	h.t.Helper()
	h.must("install_package", map[string]any{"session_id": id, "package_name": what}, &i)
	return i
}

// refuses has install_package refuse something: with a code, and these words.
func (h *client) refuses(id, what, code string, words ...string) {
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
func (h *client) prints(id, language, code, want string) {
	h.t.Helper()
	var e struct {
		Stdout, Stderr string
		Success        bool
		Error          any
	}
	h.must("execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": 120}, &e)
	if !e.Success {
		h.t.Errorf("%s\nfails, want success: stdout %q; stderr %s; error %v", code, e.Stdout, e.Stderr, e.Error)
	} else if got := strings.TrimSpace(e.Stdout); got != want {
		h.t.Errorf("%s\nprints %q, want %q; stderr %s", code, got, want, e.Stderr)
	}
}

// hints runs a program that fails, and whose error's hint says this.
func (h *client) hints(id, language, code, want string) {
	h.t.Helper()
	var e struct{ Error struct{ Hint string } }
	h.must("execute_code", map[string]any{"session_id": id, "language": language, "code": code}, &e)
	if !strings.Contains(e.Error.Hint, want) {
		h.t.Errorf("%s\ngives the hint %q", code, e.Error.Hint)
	}
}

// info is what get_workspace_info says of packages and files.
func (h *client) info(id string) (packages []string, files []string) {
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

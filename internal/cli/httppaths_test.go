//go:build unix

package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/web"
)

// TestServerAnswersTheDocumentedPaths asks the server for each path of the reference with
// each method: it answers those that are listed and no other.
func TestServerAnswersTheDocumentedPaths(t *testing.T) {
	state := t.TempDir()
	token, _, err := auth.OpenTokens(state).Create(auth.Token{Name: "all", Tools: []string{"core", "files", "sandbox", "approve"}})
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "--state-dir", state, "--tools", "core,files,sandbox")
	defer s.ends()
	host := strings.TrimSuffix(s.url, "/mcp")
	values := strings.NewReplacer("{id}", "unknown", "{name}", "named", "{path…}", "a/file", "{token}", "unknown", "{file}", "app.css", "{preview}", "abcdefghijklmnopqrstuvwxyz")
	for _, p := range app.HTTPPaths("/mcp") {
		// Those need an issuer of tokens, or a browser.
		if strings.HasPrefix(p.Pattern, "/.well-known/") || p.Pattern == "/" {
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			status, body := request(t.Context(), t, method, host+values.Replace(p.Pattern), bearer(p, token))
			listed := slices.Contains(p.Methods, method)
			noSuchPath := status == http.StatusNotFound && strings.Contains(body, "there is nothing")
			switch {
			case noSuchPath:
				t.Errorf("%s %s: no such path: %s", method, p.Pattern, body)
			case status == http.StatusUnauthorized && p.Access != web.Signed || status == http.StatusForbidden && p.Access != web.ByLink:
				t.Errorf("%s %s: got %d, want an answer to %s: %s", method, p.Pattern, status, p.Access, body)
			case !listed && status != http.StatusMethodNotAllowed:
				t.Errorf("%s %s: got %d, want %d, as the reference does not list the method: %s", method, p.Pattern, status, http.StatusMethodNotAllowed, body)
			case listed && status == http.StatusMethodNotAllowed && !strings.HasPrefix(p.Pattern, "/mcp"): // without an MCP session GET is refused there
				t.Errorf("%s %s: got %d, but the reference lists the method: %s", method, p.Pattern, status, body)
			}
			if p.Access == web.Anyone || p.Access == web.ByLink || p.Access == web.Signed || !listed {
				continue
			}
			// JSON-RPC's type of body is looked at first.
			status, body = request(t.Context(), t, method, host+values.Replace(p.Pattern), "")
			if status != http.StatusUnauthorized && status != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s without a token: got %d, want %d: %s", method, p.Pattern, status, http.StatusUnauthorized, body)
			}
		}
	}
}

// bearer is the token that a path needs; "": none.
func bearer(p web.Path, token string) string {
	if p.Access == web.Anyone || p.Access == web.ByLink || p.Access == web.Signed {
		return ""
	}
	return token
}

package web

import "net/http"

// Path describes a path of the HTTP server for the reference (docs/reference/http.md).
// A test asks the joined server for each of them, with each method.
type Path struct {
	// Pattern is the path; what is in braces varies, and a name with … may have slashes.
	Pattern string
	// Methods are the methods that it answers; HEAD is not listed where GET is.
	Methods []string
	// Access says who may ask.
	Access Access
	// Doc says what it gives or does, in one sentence.
	Doc string
}

// Access says what a request needs.
type Access string

// The kinds of access.
const (
	Anyone   Access = "anyone"
	AnyToken Access = "a token"
	FilesSet Access = "a token with the set `files`"
	CoreSet  Access = "a token with the set `core`"
	Sandbox  Access = "a token with the set `sandbox`"
	Approve  Access = "a token with the scope `approve`"
	ByLink   Access = "whoever has the link"
	Signed   Access = "whoever has a signed URL or the sandbox's token"
)

// Paths are the paths that the server answers itself or hands to one handler, where the
// MCP endpoint is at mcp.
func Paths(mcp string) []Path {
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	return []Path{
		{mcp, []string{http.MethodGet, http.MethodPost, http.MethodDelete}, AnyToken, "The MCP endpoint. Clients of 2026-07-28 only use `POST`."},
		{mcp + namedPath + "{name}", []string{http.MethodGet, http.MethodPost, http.MethodDelete}, AnyToken, "The MCP endpoint with a session chosen by its name."},
		{"/healthz", get, Anyone, "Reports that the process answers."},
		{"/readyz", get, Anyone, "Reports whether the server takes work, and the reasons if it does not."},
		{signInPath, post, Anyone, "Signs a browser in, at a page of this server's: `{\"ticket\": …}` of a link of `paddock open`, or `{\"token\": …}`. The answer has a cookie, and the key to send as `X-Paddock-Key`."},
		{signOutPath, post, Anyone, "Ends the browser's sign-in."},
		{whoPath, get, AnyToken, "Says whose the request is, and what they may use."},
		{"/metrics", get, AnyToken, "Metrics in Prometheus' format; `transport_http.metrics_open` opens it to anyone."},
		{wellKnown, get, Anyone, "The issuer of tokens (RFC 9728), where `auth.issuer` is set."},
		{rpcPath, post, Sandbox, "microsandbox's JSON-RPC, where the set `sandbox` is enabled."},
		{e2bPath + "sandboxes", []string{http.MethodGet, http.MethodPost}, Sandbox, "E2B's API, for E2B's SDKs: `E2B_API_URL` and `E2B_SANDBOX_URL` name `/e2b` (see [E2B's SDKs](../e2b.md)). A request to a sandbox needs the sandbox's own token."},
		{e2bFiles, []string{http.MethodGet, http.MethodPost}, Signed, "The contents of a file in a sandbox of E2B's clients, by a signed URL."},
		{healthPath, get, Anyone, "microsandbox's health check, where the set `sandbox` is enabled."},
	}
}

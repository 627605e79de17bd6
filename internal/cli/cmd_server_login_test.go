package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/app"
	"paddock/internal/bindings/upstream"
)

// guarded is an MCP server that wants a token, and the issuer that it trusts.
type guarded struct {
	*httptest.Server
	mu    sync.Mutex // guards what follows
	asked url.Values // of the last login
	valid string     // the token; empty: none was given out
	sent  url.Values // of the last request for a token
	count int        // how many tokens a machine was given
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{}
	s := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "secret", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	tools := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		valid := g.valid
		g.mu.Unlock()
		if valid == "" || r.Header.Get("Authorization") != "Bearer "+valid {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+g.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		tools.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token", "registration_endpoint": g.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		asked["client_id"], asked["token_endpoint_auth_method"] = "registered", "none"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(asked)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.asked = r.URL.Query()
		g.mu.Unlock()
		back := url.Values{"code": {"the-code"}, "state": {r.URL.Query().Get("state")}}
		http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", g.token)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(func() { g.CloseClientConnections(); g.Close() })
	return g
}

func (g *guarded) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent = r.Form
	if r.Form.Get("grant_type") == "client_credentials" {
		if r.Form.Get("client_id") != "machine" || r.Form.Get("client_secret") != "hush-hush-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			reply(w, map[string]any{"error": "invalid_client", "error_description": "hush-hush"})
			return
		}
		g.count++
		g.valid = fmt.Sprint("hush-hush-machine-", g.count)
		reply(w, map[string]any{"access_token": g.valid, "token_type": "Bearer", "expires_in": 3600})
		return
	}
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	if r.Form.Get("code") != "the-code" || g.asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		reply(w, map[string]any{"error": "invalid_grant"})
		return
	}
	g.valid = "hush-hush-token"
	reply(w, map[string]any{"access_token": g.valid, "refresh_token": "hush-hush-refresh", "token_type": "Bearer", "expires_in": 3600})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// loggingIn runs paddock server login, and hands over the address for a browser when it
// is printed. What browse gives is written on stdin.
func loggingIn(t *testing.T, browse func(address string) (pasted string)) result {
	t.Helper()
	in, typed := io.Pipe()
	printed, stderr := io.Pipe()
	var stdout, all bytes.Buffer
	var work sync.WaitGroup
	work.Go(func() {
		defer typed.Close()
		text := ""
		address := regexp.MustCompile(`(?m)^http://\S+/authorize\?\S+$`)
		for buffer := make([]byte, 4096); ; {
			n, err := printed.Read(buffer)
			all.Write(buffer[:n])
			if err != nil {
				return
			}
			if text += string(buffer[:n]); browse != nil && strings.Contains(text, "paste the address") && address.MatchString(text) {
				if pasted := browse(address.FindString(text)); pasted != "" {
					fmt.Fprintln(typed, "not an address\n"+pasted)
				}
				browse = nil
			}
		}
	})
	p := &cli{stdin: in, stdout: &stdout, stderr: stderr, Env: app.Env{NewBackends: newFake}}
	code := p.main(t.Context(), []string{"server", "login", "docs"})
	stderr.Close()
	work.Wait()
	in.Close()
	return result{code, stdout.String(), all.String()}
}

// visit opens an address as a browser does, up to where the login ends.
func visit(t *testing.T, address string, follow bool) string {
	c := &http.Client{}
	if !follow {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	resp, err := c.Get(address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	defer c.CloseIdleConnections()
	if !follow {
		return resp.Header.Get("Location")
	}
	if page, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("the browser ends: resp.StatusCode: got %v, want %v: %s", resp.StatusCode, http.StatusOK, page)
	} else if !strings.Contains(string(page), "can be closed") {
		t.Errorf("the browser ends: got %q, want %q in it", string(page), "can be closed")
	}
	return ""
}

// keepsNoSecret looks through the state folder.
func keepsNoSecret(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(os.Getenv("PADDOCK_STATE_DIR"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if text, err := os.ReadFile(path); err != nil {
			t.Errorf("%s: got error %v, want none", path, err)
		} else if bytes.Contains(text, []byte("hush")) {
			t.Errorf("%s: got %q, want no %q in it", path, text, "hush")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestALoginEndsInTheBrowserHereOrInWhatIsPasted(t *testing.T) {
	for name, follow := range map[string]bool{"the browser is here": true, "the browser is elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PADDOCK_VAULT_KEYRING", "off")
			g := newGuarded(t)
			if r := command(t, newFake, "server", "add", "docs", g.URL+"/mcp", "--scope", "read"); r.code != 0 {
				t.Fatalf("%+v", r)
			}
			if r := again(t, "server", "ls", "--check"); r.code != exitFailed {
				t.Errorf("before the login: r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
			} else if !strings.Contains(r.stdout, " login ") {
				t.Errorf("before the login: r.stdout: got %q, want %q in it", r.stdout, " login ")
			} else if !strings.Contains(r.stdout, "paddock server login docs") {
				t.Errorf("before the login: r.stdout: got %q, want %q in it", r.stdout, "paddock server login docs")
			}
			if r := again(t, "server", "tools", "docs"); r.code != exitFailed {
				t.Errorf("before the login its tools: r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
			} else if !strings.Contains(r.stderr, "hint: paddock server login docs") {
				t.Errorf("before the login its tools: r.stderr: got %q, want %q in it",
					r.stderr, "hint: paddock server login docs")
			}
			r := loggingIn(t, func(address string) string {
				for _, other := range []string{"?code=x&state=y", "?error=access_denied", ""} { // any page of the web could
					u, _ := url.Parse(address)
					visitQuietly(u.Query().Get("redirect_uri") + other)
				}
				return visit(t, address, follow)
			})
			if r.code != 0 {
				t.Fatalf("the login: r.code: got %v, want 0: %s", r.code, r.stderr)
			}
			if r.stdout != "docs: logged in\n" {
				t.Fatalf("the login: r.stdout: got %q, want %q", r.stdout, "docs: logged in\n")
			}
			if strings.Contains(r.stderr, "hush") {
				t.Fatalf("the login: r.stderr: got %q, want no %q in it", r.stderr, "hush")
			}
			if got := g.asked.Get("scope"); !strings.Contains(got, "read") {
				t.Errorf("it asked for %q", got)
			}
			keepsNoSecret(t)
			if r := again(t, "server", "tools", "docs"); r.code != 0 {
				t.Errorf("after the login its tools: r.code: got %v, want 0: %s", r.code, r.stderr)
			} else if !strings.Contains(r.stdout, "secret(") {
				t.Errorf("after the login its tools: r.stdout: got %q, want %q in it", r.stdout, "secret(")
			}
			if r := again(t, "server", "login", "docs"); r.code != 0 {
				t.Errorf("logging in twice: r.code: got %v, want 0: %s", r.code, r.stderr)
			} else if !strings.Contains(r.stdout, "it lets paddock in already") {
				t.Errorf("logging in twice: r.stdout: got %q, want %q in it", r.stdout, "it lets paddock in already")
			}
			if r := again(t, "server", "login", "docs", "--forget", "--json"); r.code != 0 {
				t.Errorf("forgetting: r.code: got %v, want 0: %s", r.code, r.stderr)
			} else if !strings.Contains(r.stdout, `"forgotten"`) {
				t.Errorf("forgetting: r.stdout: got %q, want %q in it", r.stdout, `"forgotten"`)
			}
			if r := again(t, "server", "ls", "--check"); r.code != exitFailed {
				t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
			} else if !strings.Contains(r.stdout, " login ") {
				t.Errorf("r.stdout: got %q, want %q in it", r.stdout, " login ")
			}
		})
	}
}

// visitQuietly asks for an address, whatever comes.
func visitQuietly(address string) {
	c := &http.Client{}
	defer c.CloseIdleConnections()
	if resp, err := c.Get(address); err == nil {
		resp.Body.Close()
	}
}

func TestALoginThatIsRefused(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	if r := command(t, newFake, "server", "add", "docs", g.URL+"/mcp"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := loggingIn(t, func(address string) string {
		u, _ := url.Parse(address)
		return u.Query().Get("redirect_uri") + "?error=access_denied&state=" + u.Query().Get("state")
	})
	if r.code != exitFailed {
		t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	}
	if !strings.Contains(r.stderr, "the issuer did not grant the login") {
		t.Errorf("r.stderr: got %q, want %q in it", r.stderr, "the issuer did not grant the login")
	}
	if r := again(t, "server", "rm", "docs"); r.code != 0 {
		t.Errorf("it cannot be removed: %+v", r)
	}
}

func TestNobodyLogsInWhereATokenIsGiven(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	g.valid = "given"
	if r := command(t, newFake, "server", "add", "docs", g.URL+"/mcp", "--header", "authorization: Bearer given"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := again(t, "server", "login", "docs"); r.code != exitFailed {
		t.Errorf("r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	} else if !strings.Contains(r.stderr, "it has an Authorization header") {
		t.Errorf("r.stderr: got %q, want %q in it", r.stderr, "it has an Authorization header")
	}
	if r := again(t, "server", "tools", "docs"); r.code != 0 {
		t.Errorf("its tools: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if !strings.Contains(r.stdout, "secret(") {
		t.Errorf("its tools: r.stdout: got %q, want %q in it", r.stdout, "secret(")
	}
	g.valid = "another"
	r := again(t, "server", "ls", "--check")
	if r.code != exitFailed {
		t.Errorf("where it is refused the exit code is %d, want %d", r.code, exitFailed)
	}
	for _, want := range []string{" refused ", "does not take what its Authorization header has"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("where it is refused stdout is %q, want %q in it", r.stdout, want)
		}
	}
	if strings.Contains(r.stdout, "server login") {
		t.Errorf("where it is refused stdout is %q, want no login", r.stdout)
	}
}

func TestWhatAProgramSaidIsOneLineOfATable(t *testing.T) {
	if got := itSaid(&upstream.Error{Stderr: "no such option\ntry --help"}); got != "it said: no such option; try --help" {
		t.Errorf("it is %q", got)
	}
}

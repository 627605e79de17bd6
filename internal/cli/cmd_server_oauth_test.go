package cli

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withServers writes a paddock.toml with a server, and has what is run read it.
func withServers(t *testing.T, format string, args ...any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "paddock.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PADDOCK_CONFIG", file)
}

func TestAMachinesCredentialsAreAllThatItNeeds(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	withServers(t, "[servers.docs]\nurl = \"%s/mcp\"\noauth.grant = \"client_credentials\"\noauth.client_id = \"machine\"\noauth.client_secret = \"${SECRET}\"\noauth.issuer = \"%s\"\noauth.scopes = [\"read\", \"list\"]\n", g.URL, g.URL)
	t.Setenv("SECRET", "hush-hush-wrong")
	r := command(t, newFake, "server", "tools", "docs")
	if r.code != exitFailed {
		t.Errorf("with a wrong secret: r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	}
	if !strings.Contains(r.stderr, "hint: check oauth.client_id") {
		t.Errorf("with a wrong secret: r.stderr: got %q, want %q in it", r.stderr, "hint: check oauth.client_id")
	}
	if strings.Contains(r.stderr, "hush") {
		t.Errorf("with a wrong secret: r.stderr: got %q, want no %q in it", r.stderr, "hush")
	}
	t.Setenv("SECRET", "hush-hush-secret")
	if r := again(t, "server", "ls", "--check"); r.code != 0 {
		t.Errorf("r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if !strings.Contains(r.stdout, "ok (1 tools)") {
		t.Errorf("r.stdout: got %q, want %q in it", r.stdout, "ok (1 tools)")
	}
	// Scopes are a set: their order is the SDK's.
	if got := strings.Fields(g.sent.Get("scope")); len(got) != 2 {
		t.Errorf("len(got): got %d, want 2: %v", len(got), got)
	} else if !slices.Contains(got, "read") {
		t.Errorf(`strings.Fields(g.sent.Get("scope")): got %q, want %q among them`, got, "read")
	} else if !slices.Contains(got, "list") {
		t.Errorf(`strings.Fields(g.sent.Get("scope")): got %q, want %q among them`, got, "list")
	}
	if r := again(t, "server", "login", "docs"); r.code != 0 {
		t.Errorf("logging in: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if !strings.Contains(r.stdout, "it lets paddock in already") {
		t.Errorf("logging in: r.stdout: got %q, want %q in it", r.stdout, "it lets paddock in already")
	}
	keepsNoSecret(t)
	g.mu.Lock()
	g.valid, g.sent = "", nil // the token is not accepted any more
	g.mu.Unlock()
	if r := again(t, "server", "tools", "docs"); r.code != 0 {
		t.Errorf("the next token: r.code: got %v, want 0: %s", r.code, r.stderr)
	} else if g.sent.Get("grant_type") != "client_credentials" {
		t.Errorf(`the next token: g.sent.Get("grant_type"): got %q, want %q`,
			g.sent.Get("grant_type"), "client_credentials")
	}
}

func TestCredentialsAreForTheIssuerOfTheConfiguration(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	withServers(t, "[servers.docs]\nurl = \"%s/mcp\"\noauth.grant = \"client_credentials\"\noauth.client_id = \"machine\"\noauth.client_secret = \"hush-hush-secret\"\noauth.issuer = \"https://issuer.test\"\n", g.URL)
	if r := command(t, newFake, "server", "tools", "docs"); r.code != exitFailed {
		t.Errorf("another issuer: r.code: got %v, want %v: %s", r.code, exitFailed, r.stderr)
	} else if strings.Contains(r.stderr, "hush") {
		t.Errorf("another issuer: r.stderr: got %q, want no %q in it", r.stderr, "hush")
	} else if g.sent != nil {
		t.Errorf("another issuer: g.sent: got %+v, want nil", g.sent)
	}
}

func TestALoginEndsAtTheAddressOfTheConfiguration(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	redirect := "http://" + l.Addr().String() + "/my/callback"
	withServers(t, "[servers.docs]\nurl = \"%s/mcp\"\noauth.client_id = \"known\"\noauth.client_secret = \"hush-hush-known\"\noauth.redirect = \"%s\"\n", g.URL, redirect)
	command(t, newFake, "version")
	for _, follow := range []bool{false, true} {
		name := map[bool]string{false: "somebody else listens there", true: "paddock listens there"}[follow]
		if follow {
			l.Close()
		}
		r := loggingIn(t, func(address string) string {
			u, _ := url.Parse(address)
			if q := u.Query(); q.Get("redirect_uri") != redirect {
				t.Errorf(`%s: the login: q.Get("redirect_uri"): got %v, want %v`, name, q.Get("redirect_uri"), redirect)
			} else if q.Get("client_id") != "known" {
				t.Errorf(`%s: the login: q.Get("client_id"): got %q, want %q`, name, q.Get("client_id"), "known")
			}
			return visit(t, address, follow)
		})
		if r.code != 0 {
			t.Fatalf("%s: the login ends: r.code: got %v, want 0: %s", name, r.code, r.stderr)
		}
		if r.stdout != "docs: logged in\n" {
			t.Fatalf("%s: the login ends: r.stdout: got %q, want %q", name, r.stdout, "docs: logged in\n")
		}
		if strings.Contains(r.stderr, "hush") {
			t.Fatalf("%s: stderr is %q, want no secret in it", name, r.stderr)
		}
		if got := strings.Contains(r.stderr, "cannot wait at"); got != !follow {
			t.Fatalf("%s: stderr is %q, want it to say that it cannot wait: %v", name, r.stderr, !follow)
		}
		if g.sent.Get("client_secret") != "hush-hush-known" {
			t.Errorf(`%s: the issuer: g.sent.Get("client_secret"): got %q, want %q`,
				name, g.sent.Get("client_secret"), "hush-hush-known")
		}
		if g.sent.Get("redirect_uri") != redirect {
			t.Errorf(`%s: the issuer: g.sent.Get("redirect_uri"): got %v, want %v`,
				name, g.sent.Get("redirect_uri"), redirect)
		}
		if r := again(t, "server", "tools", "docs"); r.code != 0 {
			t.Errorf("%s: its tools: r.code: got %v, want 0: %s", name, r.code, r.stderr)
		} else if !strings.Contains(r.stdout, "secret(") {
			t.Errorf("%s: its tools: r.stdout: got %q, want %q in it", name, r.stdout, "secret(")
		}
		if r := again(t, "server", "login", "docs", "--forget"); r.code != 0 {
			t.Errorf("%s: forgetting gives %+v", name, r)
		}
	}
}

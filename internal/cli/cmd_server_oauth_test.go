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
	if r.code != exitFailed || !strings.Contains(r.stderr, "hint: check oauth.client_id") || strings.Contains(r.stderr, "hush") {
		t.Errorf("with a wrong secret it gives %+v", r)
	}
	t.Setenv("SECRET", "hush-hush-secret")
	if r := again(t, "server", "ls", "--check"); r.code != 0 || !strings.Contains(r.stdout, "ok (1 tools)") {
		t.Errorf("it is %+v", r)
	}
	// Scopes are a set: their order is the SDK's.
	if got := strings.Fields(g.sent.Get("scope")); len(got) != 2 || !slices.Contains(got, "read") || !slices.Contains(got, "list") {
		t.Errorf("it asked for %q", got)
	}
	if r := again(t, "server", "login", "docs"); r.code != 0 || !strings.Contains(r.stdout, "it lets paddock in already") {
		t.Errorf("logging in gives %+v", r)
	}
	keepsNoSecret(t)
	g.mu.Lock()
	g.valid, g.sent = "", nil // the token is not accepted any more
	g.mu.Unlock()
	if r := again(t, "server", "tools", "docs"); r.code != 0 || g.sent.Get("grant_type") != "client_credentials" {
		t.Errorf("the next token is not asked for: %+v", r)
	}
}

func TestCredentialsAreForTheIssuerOfTheConfiguration(t *testing.T) {
	t.Setenv("PADDOCK_VAULT_KEYRING", "off")
	g := newGuarded(t)
	withServers(t, "[servers.docs]\nurl = \"%s/mcp\"\noauth.grant = \"client_credentials\"\noauth.client_id = \"machine\"\noauth.client_secret = \"hush-hush-secret\"\noauth.issuer = \"https://issuer.test\"\n", g.URL)
	if r := command(t, newFake, "server", "tools", "docs"); r.code != exitFailed || strings.Contains(r.stderr, "hush") || g.sent != nil {
		t.Errorf("another issuer is shown %v: %+v", g.sent, r)
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
			if q := u.Query(); q.Get("redirect_uri") != redirect || q.Get("client_id") != "known" {
				t.Errorf("%s: the login is asked for with %v", name, q)
			}
			return visit(t, address, follow)
		})
		if r.code != 0 || r.stdout != "docs: logged in\n" {
			t.Fatalf("%s: the login ends with %d and %q, want 0 and docs: logged in: %s", name, r.code, r.stdout, r.stderr)
		}
		if strings.Contains(r.stderr, "hush") {
			t.Fatalf("%s: stderr is %q, want no secret in it", name, r.stderr)
		}
		if got := strings.Contains(r.stderr, "cannot wait at"); got != !follow {
			t.Fatalf("%s: stderr is %q, want it to say that it cannot wait: %v", name, r.stderr, !follow)
		}
		if g.sent.Get("client_secret") != "hush-hush-known" || g.sent.Get("redirect_uri") != redirect {
			t.Errorf("%s: the issuer got %v", name, g.sent)
		}
		if r := again(t, "server", "tools", "docs"); r.code != 0 || !strings.Contains(r.stdout, "secret(") {
			t.Errorf("%s: its tools are %+v", name, r)
		}
		if r := again(t, "server", "login", "docs", "--forget"); r.code != 0 {
			t.Errorf("%s: forgetting gives %+v", name, r)
		}
	}
}

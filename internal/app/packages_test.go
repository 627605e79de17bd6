package app

import (
	"encoding/base64"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/config"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestWhatThisMachinesClientsAreSetUpWith(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	npmrc := filepath.Join(home, ".npmrc")
	for _, test := range []struct {
		name      string
		env       map[string]string
		files     map[string]string
		pypi, npm []pkgproxy.Index
		cert      string
	}{
		{name: "nothing"},
		{name: "pip's variables", env: map[string]string{"PIP_INDEX_URL": "https://me:secret@a.test/simple", "PIP_EXTRA_INDEX_URL": "https://b.test/simple file:///c", "PIP_CERT": "/ca.pem"},
			pypi: []pkgproxy.Index{{URL: "https://a.test/simple", User: "me", Password: "secret"}, {URL: "https://b.test/simple"}}, cert: "/ca.pem"},
		{name: "an extra index comes beside one that nobody named", env: map[string]string{"PIP_EXTRA_INDEX_URL": "https://b.test/simple"}},
		{name: "uv's", env: map[string]string{"UV_DEFAULT_INDEX": "http://a.test"}, pypi: []pkgproxy.Index{{URL: "http://a.test"}}},
		{name: "pip's file", env: map[string]string{"PIP_CONFIG_FILE": "/pip.conf"}, files: map[string]string{"/pip.conf": "[install]\nindex-url = https://no.test\n[global]\n# ours\nindex-url = https://a.test/simple\nextra-index-url = https://b.test\n    https://c.test\ncert = /ca.pem\n"},
			pypi: []pkgproxy.Index{{URL: "https://a.test/simple"}, {URL: "https://b.test"}, {URL: "https://c.test"}}, cert: "/ca.pem"},
		{name: "what is not a URL", env: map[string]string{"PIP_INDEX_URL": "/srv/simple", "npm_config_registry": "registry"}},
		{name: "npm's variable", env: map[string]string{"npm_config_registry": "https://r.test/"}, npm: []pkgproxy.Index{{URL: "https://r.test/"}}},
		{name: "npm's file, with a token", env: map[string]string{"TOKEN": "secret"}, files: map[string]string{npmrc: "registry=https://r.test/npm/\n//r.test/:_authToken=${TOKEN}\n"},
			npm: []pkgproxy.Index{{URL: "https://r.test/npm/", Token: "secret"}}},
		{name: "npm's file, with a password", files: map[string]string{npmrc: "registry = https://r.test/npm\n//r.test/npm/:_auth = " + base64.StdEncoding.EncodeToString([]byte("me:secret")) + "\n//other.test/:_authToken=no\n"},
			npm: []pkgproxy.Index{{URL: "https://r.test/npm", User: "me", Password: "secret"}}},
		{name: "another registry's token", files: map[string]string{npmrc: "registry=https://r.test/\n//other.test/:_authToken=no\n"}, npm: []pkgproxy.Index{{URL: "https://r.test/"}}},
	} {
		m := ofMachine(func(name string) string { return test.env[name] }, func(name string) ([]byte, error) {
			if text, ok := test.files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if !alikeIndexes(m.pypi.indexes, test.pypi) || !alikeIndexes(m.npm.indexes, test.npm) || m.pypi.cert != test.cert {
			t.Errorf("%s: %+v", test.name, m)
		}
	}
}

func alikeIndexes(a, b []pkgproxy.Index) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if a[k].URL != b[k].URL || a[k].User != b[k].User || a[k].Password != b[k].Password || a[k].Token != b[k].Token {
			return false
		}
	}
	return true
}

func TestCredentialsBelongToTheirHost(t *testing.T) {
	c := config.Packages{Credentials: map[string]string{"a.test": "me:secret", "b.test:8443": "token"}}
	e := ecosystem(c, config.PackageIndex{Index: []string{"https://a.test/simple", "https://b.test:8443", "https://b.test", "/srv/wheels"}, Allow: []string{"*"}, CooldownDays: 2})
	want := []pkgproxy.Index{{URL: "https://a.test/simple", User: "me", Password: "secret"}, {URL: "https://b.test:8443", Token: "token"}, {URL: "https://b.test"}, {URL: "/srv/wheels"}}
	if !alikeIndexes(e.Indexes, want) || e.Cooldown.Hours() != 48 {
		t.Errorf("%+v", e)
	}
}

// Packages are reached whatever the rules say, and nothing else is.
func TestSessionsReachPackagesAlone(t *testing.T) {
	wheels := t.TempDir()
	if err := os.WriteFile(filepath.Join(wheels, "house-1.0-py3-none-any.whl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Environ: []string{"PADDOCK_VAULT_KEYRING=off", "PADDOCK_PACKAGES_MACHINE=false", "PADDOCK_PACKAGES_PYPI_INDEX=" + wheels}})
	if err != nil {
		t.Fatal(err)
	}
	fake := func(*Env, *session.Life, sandbox.Translator) (Backends, error) {
		return Backends{sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "linux"})}, nil
	}
	p := &Env{NewBackends: fake, Config: c, StateDir: t.TempDir(), CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	o, err := p.Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	address, _ := site(t)
	for _, set := range []session.Settings{{}, {Network: &[]string{}}} {
		id := made(t, o, set)
		if line, _ := get(t, o, id, "GET", "http://"+pkgproxy.Host+"/pypi/simple/"); !strings.Contains(line, "200") {
			t.Errorf("packages answer %q", line)
		}
		if line, res := get(t, o, id, "GET", "http://"+address+"/"); !strings.Contains(line, "403") || res.Refused == "" {
			t.Errorf("another host answers %q, told of as %q", line, res.Refused)
		}
	}
	if env := o.network.Machine(session.Local, "", session.Settings{}).Env; env["PIP_INDEX_URL"] != "http://"+pkgproxy.Host+"/pypi/simple/" || env["HTTP_PROXY"] == "" {
		t.Errorf("programs find %q", env)
	}
}

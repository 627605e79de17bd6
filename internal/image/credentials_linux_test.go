package image

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"paddock/internal/fault"
)

// TestARegistryThatWantsCredentials has each of the two ways of asking for them.
func TestARegistryThatWantsCredentials(t *testing.T) {
	const user, password = "robot", "sesame:open"
	for way, challenge := range map[string]string{"a password": `Basic realm="r"`, "a token": `Bearer realm="http://%s/token",service="s"`} {
		t.Run(way, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir()) // where docker login leaves credentials
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			reg := startRegistry(t)
			ref := reg.push(t, "private:1", twoLayers(t))
			reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
				u, p, ok := r.BasicAuth()
				known := ok && u == user && p == password
				switch {
				case r.URL.Path == "/token" && known:
					fmt.Fprint(w, `{"token":"t"}`)
					return true
				case way == "a password" && known, r.Header.Get("Authorization") == "Bearer t":
					return false
				}
				if strings.Contains(challenge, "%s") {
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(challenge, reg.host))
				} else {
					w.Header().Set("WWW-Authenticate", challenge)
				}
				w.WriteHeader(http.StatusUnauthorized)
				return true
			})
			for name, test := range map[string]struct {
				credentials map[string]string
				login       string
				want        fault.Kind
			}{
				"none":                  {nil, "", fault.Denied},
				"another registry's":    {map[string]string{"other.test": user + ":" + password}, "", fault.Denied},
				"wrong ones":            {map[string]string{reg.host: user + ":no"}, "", fault.Denied},
				"the configuration's":   {map[string]string{reg.host: user + ":" + password}, "", ""},
				"those of docker login": {nil, `{"auths":{"` + reg.host + `":{"username":"` + user + `","password":"` + password + `"}}}`, ""},
			} {
				t.Run(name, func(t *testing.T) {
					file := filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json")
					if test.login != "" {
						if err := os.WriteFile(file, []byte(test.login), 0o600); err != nil {
							t.Fatal(err)
						}
						defer os.Remove(file)
					}
					s := store(t, func(c *Config) { hasty(c); c.Credentials = test.credentials })
					_, err := s.Pull(t.Context(), Request{Reference: ref})
					if fault.KindOf(err) != test.want {
						t.Errorf("it is %v: %v", err, cause(err))
					}
					if err != nil && strings.Contains(fmt.Sprint(err, fault.Of(err).Hint, cause(err)), "sesame") {
						t.Errorf("the password is in %v", err)
					}
				})
			}
		})
	}
}

func TestCredentialsGoToTheirRegistryAlone(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	reg := startRegistry(t)
	ref := reg.push(t, "tools:1", twoLayers(t))
	var leaked atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer elsewhere.Close()
	// Another name for loopback: to an address the library would not follow.
	to := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)
	var sent atomic.Bool
	reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
		case isBlob(r):
			sent.Store(true)
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	s := store(t, func(c *Config) { hasty(c); c.Credentials = map[string]string{reg.host: "u:p"} })
	switch _, err := s.Pull(t.Context(), Request{Reference: ref}); {
	case err == nil:
		t.Errorf("no error, want one: %v, %v", sent.Load(), leaked.Load())
	case !sent.Load():
		t.Errorf("sent.Load() = false, want true: %v", leaked.Load())
	case leaked.Load():
		t.Errorf("leaked.Load() = true, want false: %v", sent.Load())
	}
}

// A server that is started without HOME, such as by an init system, in a folder of
// somebody else's, has no login; one that is named counts.
func TestALoginInTheWorkingFolderIsNotObeyed(t *testing.T) {
	login := func(host string) []byte {
		return []byte(`{"auths":{"` + host + `":{"username":"planted","password":"planted"}}}`)
	}
	place := t.TempDir() // of the user's own login
	for name, c := range map[string]struct {
		env  map[string]string
		want string // the name that the registry is given
	}{
		"nothing is set":           {nil, ""},
		"a home that is relative":  {map[string]string{"HOME": "."}, ""},
		"another that is relative": {map[string]string{"HOME": place, "XDG_CONFIG_HOME": "."}, ""},
		"docker's is relative":     {map[string]string{"HOME": place, "DOCKER_CONFIG": ".docker"}, ""},
		"one that is not there":    {map[string]string{"DOCKER_CONFIG": filepath.Join(place, "no")}, ""},
		"docker's":                 {map[string]string{"DOCKER_CONFIG": place}, "planted"},
		"podman's":                 {map[string]string{"REGISTRY_AUTH_FILE": filepath.Join(place, "config.json")}, "planted"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"} {
				t.Setenv(key, c.env[key])
			}
			reg := startRegistry(t)
			ref := reg.push(t, "private:1", twoLayers(t))
			var given atomic.Value
			given.Store("")
			reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
				if user, _, ok := r.BasicAuth(); ok {
					given.Store(user)
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			})
			t.Chdir(t.TempDir())
			for _, file := range []string{"containers/auth.json", ".docker/config.json", ".config/containers/auth.json", filepath.Join(place, "config.json")} {
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, login(reg.host), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := store(t, hasty)
			if _, err := s.Pull(t.Context(), Request{Reference: ref}); fault.KindOf(err) != fault.Denied {
				t.Errorf("it is %v", err)
			}
			if got := given.Load(); got != c.want {
				t.Errorf("the registry is given %q, want %q", got, c.want)
			}
		})
	}
}

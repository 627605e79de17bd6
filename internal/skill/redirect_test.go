package skill

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A token goes to the origin that it is for, and not along with a redirect to another
// port of its host, to http, or back again from there.
func TestATokenGoesToTheExactOriginOnly(t *testing.T) {
	archive := tarGz(t, entriesOf("owner-repo-0123456/", example("repo"))...)
	var mu sync.Mutex
	var seen []string // where the token was
	note := func(name string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for _, header := range []string{"Authorization", "Cookie"} {
			if r.Header.Get(header) != "" {
				seen = append(seen, name+r.URL.Path)
			}
		}
	}
	var api *httptest.Server
	gives := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			note(name, r)
			if strings.HasSuffix(r.URL.Path, "/back") {
				http.Redirect(w, r, api.URL+"/file", http.StatusFound)
				return
			}
			_, _ = w.Write(archive)
		}
	}
	plain := httptest.NewServer(gives("http"))
	defer plain.Close()
	other := httptest.NewTLSServer(gives("other port"))
	defer other.Close()
	to := map[string]string{}
	api = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("api", r)
		if at := to[r.URL.Path]; at != "" {
			http.Redirect(w, r, at, http.StatusFound)
			return
		}
		_, _ = w.Write(archive)
	}))
	defer api.Close()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // loopback, made here
	defer transport.CloseIdleConnections()
	s := NewStore(Config{Dir: t.TempDir(), Transport: transport, GitHub: GitHubConfig{API: api.URL, Token: "hush"}})
	for _, c := range []struct{ name, to, want string }{
		{"the same origin", api.URL + "/file", "api/repos/owner/repo/tarball api/file"},
		{"another port of the host", other.URL + "/file", "api/repos/owner/repo/tarball"},
		{"http", plain.URL + "/file", "api/repos/owner/repo/tarball"},
		{"another port, and back", other.URL + "/back", "api/repos/owner/repo/tarball"},
	} {
		to["/repos/owner/repo/tarball"], seen = c.to, nil
		if _, _, err := s.get(t, "github:owner/repo", false); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := strings.Join(seen, " "); got != c.want {
			t.Errorf("%s: the token went to %q, want %q", c.name, got, c.want)
		}
	}
	to["/repos/owner/repo/tarball"] = api.URL + "/repos/owner/repo/tarball"
	if _, _, err := s.get(t, "github:owner/repo", false); err == nil {
		t.Error("a redirect to itself gives a skill")
	}
}

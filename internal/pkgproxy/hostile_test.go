package pkgproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
)

// indexOf is a front of an index and a registry that answer as they like.
func indexOf(t *testing.T, answer http.HandlerFunc) (*pkgproxy.Packages, *httptest.Server) {
	t.Helper()
	x := httptest.NewServer(answer)
	t.Cleanup(x.Close)
	at := pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: x.URL}}, Allow: []string{"*"}}
	p := open(t, pkgproxy.Config{Python: at, NPM: at})
	front := httptest.NewServer(p.Handler("ann"))
	t.Cleanup(front.Close)
	return p, front
}

const jsonKind = "application/vnd.pypi.simple.v1+json"

// repeated answers with a beginning, and a piece for ever.
func repeated(kind, begin, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, err := io.WriteString(w, begin)
		for block := strings.Repeat(piece, 1+(64<<10)/len(piece)); err == nil; {
			_, err = io.WriteString(w, block)
		}
	}
}

// What a registry or an index says without end, or in a way that no memory could hold, is
// refused, and the next package is served.
func TestIndexesThatAreMadeToDoHarmAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		answer http.HandlerFunc
	}{
		"a text without end":          {"/npm/a", repeated("application/json", `{"name":"`, "x")},
		"a readme without end":        {"/npm/a", repeated("application/json", `{"name":"a","readme":"`, "x")},
		"lists in lists":              {"/npm/a", repeated("application/json", `{"name":"a","x":`, "[")},
		"versions without end":        {"/npm/a", repeated("application/json", `{"name":"a","versions":{"1.0.0":{}`, `,"1.0.0":{}`)},
		"spaces without end":          {"/npm/a", repeated("application/json", `{"name":"a",`, " ")},
		"another package":             {"/npm/a", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"name":"b","versions":{}}`) }},
		"half an answer":              {"/npm/a", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"name":"a","versions":{`) }},
		"no object":                   {"/npm/a", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `[]`) }},
		"a text without end (Python)": {"/pypi/simple/a/", repeated(jsonKind, `{"files":[{"filename":"`, "x")},
		"lists in lists (Python)":     {"/pypi/simple/a/", repeated(jsonKind, `{"files":`, "[")},
		"files without end":           {"/pypi/simple/a/", repeated(jsonKind, `{"files":[{}`, ",{}")},
		"HTML without a sign":         {"/pypi/simple/a/", repeated("text/html", "<a ", "x=y ")},
		"a comment without end":       {"/pypi/simple/a/", repeated("text/html", "<!-- ", "x")},
		"half an answer (Python)": {"/pypi/simple/a/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonKind)
			io.WriteString(w, `{"files":[`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, front := indexOf(t, c.answer)
			if a := get(t, front.URL+c.path); a.status != http.StatusBadGateway {
				t.Errorf("a.status: got %v, want %v: %.200s", a.status, http.StatusBadGateway, a.body)
			} else if a.err != nil {
				t.Errorf("a.err: got error %v, want none", a.err)
			}
		})
	}
}

// What of a description is not as it should be is left out, and the rest is served.
func TestWhatAnIndexMayNotSayIsLeftOut(t *testing.T) {
	sum, sum512 := strings.Repeat("0a", 32), "sha512-"+strings.Repeat("A", 86)+"=="
	version := func(version, more, tarball string) string {
		return fmt.Sprintf(`%q:{"name":"a","version":%[1]q%s,"dist":{"tarball":%q,"integrity":%q}}`, version, more, tarball, sum512)
	}
	npm := `{"name":"a","__proto__":{"x":1},"dist-tags":{"latest":"9.9.9","__proto__":"1.0.0"},"versions":{` + strings.Join([]string{
		version("1.0.0", `,"__proto__":{"polluted":true},"bin":{"../../x":"y"}`, "a.tgz"),
		version("1.0.1", "", "file:///etc/passwd"),
		version("1.0.2", "", "http://user:password@elsewhere/a.tgz"),
		version("../../2.0.0", "", "a.tgz"),
		version("1.0.3", `,"dependencies":{`+strings.Repeat(`"x":"1",`, 50_000)+`"y":"1"}`, "a.tgz"),
		`"1.0.4":null`, `"1.0.5":[]`, `"1.0.6":{"name":"b","version":"1.0.6","dist":{"tarball":"a","integrity":"` + sum512 + `"}}`,
		`"1.0.7":{"name":"a","version":"1.0.8","dist":{"tarball":"a","integrity":"` + sum512 + `"}}`,
		`"1.0.9":{"name":"a","version":"1.0.9","dist":{"tarball":"a","integrity":"md5-AAAA"}}`,
		`"1.0.0":{"name":"a","version":"1.0.0","dist":{"tarball":"http://other/","integrity":"` + sum512 + `"}}`,
	}, ",") + `}}`
	files := `{"files":[` + strings.Join([]string{
		`{"filename":"a-1.0-py3-none-any.whl","url":"x","hashes":{"sha256":"` + sum + `"}}`,
		`{"filename":"A-1.0-py3-none-any.whl","url":"file:///etc/passwd","hashes":{"sha256":"` + sum + `"}}`,
		`{"filename":"b-1.0-py3-none-any.whl","url":"x","hashes":{"sha256":"` + sum + `"}}`,
		`{"filename":"../a-1.1-py3-none-any.whl","url":"x","hashes":{"sha256":"` + sum + `"}}`,
		`{"filename":"a-1.2-` + strings.Repeat("a.", 45) + `a-` + strings.Repeat("b.", 45) + `b-` + strings.Repeat("c.", 45) + `c.whl","url":"x","hashes":{"sha256":"` + sum + `"}}`,
		`{"filename":"a-1.3-py3-none-any.whl","url":"x","hashes":{"md5":"` + sum[:32] + `"}}`,
		`{"filename":"a-1.4-py3-none-any.whl","url":"x","hashes":{"sha256":"` + sum + `"},"requires-python":"` + strings.Repeat("!=3.1,", 300) + `>3"}`,
	}, ",") + `]}`
	_, front := indexOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "application/json" {
			io.WriteString(w, npm)
			return
		}
		w.Header().Set("Content-Type", jsonKind)
		io.WriteString(w, files)
	})
	a := get(t, front.URL+"/npm/a", "application/vnd.npm.install-v1+json")
	switch {
	case a.status != 200:
		t.Errorf("a.status = %v, want 200: %.2000s", a.status, a.body)
	case strings.Count(a.body, `"integrity"`) != 1:
		t.Errorf("count of integrity in a.body = %v, want 1: %d, %.2000s",
			strings.Count(a.body, `"integrity"`), a.status, a.body)
	case !strings.Contains(a.body, `"latest":"1.0.0"`):
		t.Errorf("a.body = %q, want %q in it", a.body, `"latest":"1.0.0"`)
	case strings.Contains(a.body, "polluted"):
		t.Errorf(`a.body = %q, want no "polluted" in it`, a.body)
	}
	a = get(t, front.URL+"/pypi/simple/a/", jsonKind)
	switch {
	case a.status != 200:
		t.Errorf("a.status = %v, want 200: %.2000s", a.status, a.body)
	case strings.Count(a.body, `"filename"`) != 1:
		t.Errorf("count of filename in a.body = %v, want 1: %d, %.2000s",
			strings.Count(a.body, `"filename"`), a.status, a.body)
	case !strings.Contains(a.body, `"versions":["1.0"]`):
		t.Errorf("a.body = %q, want %q in it", a.body, `"versions":["1.0"]`)
	}
}

// A registry that makes packages up as they are asked for does not keep a resolution
// going for ever.
func TestTreesWithoutEndAreRefused(t *testing.T) {
	sum512 := "sha512-" + strings.Repeat("A", 86) + "=="
	for name, dependencies := range map[string]func(n string) string{
		"a chain": func(n string) string { return fmt.Sprintf(`"dependencies":{%q:"1"}`, n+"a") },
		"an explosion": func(n string) string {
			var all []string
			for k := range 20 {
				all = append(all, fmt.Sprintf(`"%s%c":"1"`, n, 'a'+k))
			}
			return `"dependencies":{` + strings.Join(all, ",") + `}`
		},
		"peers": func(n string) string { return fmt.Sprintf(`"peerDependencies":{%q:"1"}`, n+"a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			p, _ := indexOf(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				n := strings.TrimPrefix(r.URL.Path, "/")
				fmt.Fprintf(w, `{"name":%q,"versions":{"1.0.0":{"name":%[1]q,"version":"1.0.0",%s,"dist":{"tarball":"x","integrity":%q}}}}`, n, dependencies(n), sum512)
			})
			if _, err := p.TreeOf(t.Context(), []string{"a"}); fault.KindOf(err) != fault.Exhausted && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.NotFound {
				t.Errorf("after %d descriptions: got %v, want a refusal", asked.Load(), err)
			} else if asked.Load() > 1600 {
				t.Errorf("asked.Load(): got %v, want at most 1600", asked.Load())
			}
		})
	}
}

// Fetching that several wait for goes on while one of them does, and ends with the last.
func TestFetchingEndsWithTheLastWhoWaits(t *testing.T) {
	begun, ended := make(chan struct{}, 8), make(chan struct{}, 8)
	p, _ := indexOf(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	first, leave := context.WithCancel(t.Context())
	second, leaveToo := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, ctx := range []context.Context{first, second} {
		go func() {
			_, err := p.TreeOf(ctx, []string{"a"})
			done <- err
		}()
	}
	<-begun
	leave()
	<-done
	leaveToo()
	<-done
	<-ended
	if len(begun) > 1 {
		t.Errorf("it was asked %d times more", len(begun))
	}
}

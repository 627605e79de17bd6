package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/archive/archivetest"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// server is a Handler on loopback, over a real manager.
type server struct {
	*testing.T
	url      string
	state    string
	sessions *session.Manager
	links    *Links
}

const disk = 24 << 20

// serve starts one; a request's principal is its header X-Principal.
func serve(t *testing.T, change func(*Config)) *server {
	t.Helper()
	s := &server{T: t, state: t.TempDir()}
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	m, err := session.New(session.Config{Dir: s.state, Backends: []sandbox.Backend{backend}, DiskBytes: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); backend.Close() })
	if s.links, err = OpenLinks(s.state); err != nil {
		t.Fatal(err)
	}
	s.sessions = m
	config := Config{Sessions: m, Links: s.links}
	if change != nil {
		change(&config)
	}
	h, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("X-Principal"); name != "" {
			p := &auth.Principal{ID: name}
			if name == "no files" {
				p.Tools = []string{"core"}
			}
			if name == "brief" {
				p.Expires = time.Now().Add(time.Minute)
			}
			r = r.WithContext(auth.With(r.Context(), p))
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s.url = web.URL
	for _, owner := range []string{"alice", "no files", "brief"} {
		if _, err := m.Create(t.Context(), session.Owner(owner), "s", session.Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// answered is a response that was read whole.
type answered struct {
	status int
	head   http.Header
	body   string
}

// fault gives the error that a response holds.
func (a answered) fault(t *testing.T) fault.Problem {
	t.Helper()
	var e struct{ Error fault.Problem }
	switch err := json.Unmarshal([]byte(a.body), &e); {
	case err != nil:
		t.Errorf("no error: %v", err)
	case e.Error.Code == "":
		t.Errorf("no error: e.Error.Code is empty, want a text: %d, %s", a.status, a.body)
	case e.Error.Message == "":
		t.Errorf("no error: e.Error.Message is empty, want a text: %d, %s", a.status, a.body)
	case a.head.Get("Content-Type") != "application/json":
		t.Errorf(`no error: header Content-Type = %q, want "application/json"`, a.head.Get("Content-Type"))
	}
	return e.Error
}

// do sends a request of alice's; headers come in pairs, and may name another principal.
func (s *server) do(method, path string, body io.Reader, headers ...string) answered {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("X-Principal", "alice")
	for k := 0; k < len(headers); k += 2 {
		r.Header.Set(headers[k], headers[k+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows nothing
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(text)}
}

func (s *server) put(path, content string, headers ...string) answered {
	s.Helper()
	return s.do("PUT", "/v1/sessions/s/files/"+path, strings.NewReader(content), headers...)
}

// want checks a status, and of an error its kind.
func (s *server) want(a answered, status int, kind fault.Kind) answered {
	s.Helper()
	if a.status != status {
		s.Errorf("got %d %s, want %d", a.status, a.body, status)
	} else if kind != "" && a.fault(s.T).Code != kind {
		s.Errorf("got %s, want the kind %s", a.body, kind)
	}
	return a
}

func TestAFileComesBackAsItWasSent(t *testing.T) {
	s := serve(t, nil)
	made := s.want(s.put("a/b%20c.txt", "hello"), 201, "")
	var e entry
	switch err := json.Unmarshal([]byte(made.body), &e); {
	case err != nil:
		t.Error(err)
	case e.Path != "a/b c.txt":
		t.Errorf(`e.Path = %q, want "a/b c.txt"`, e.Path)
	case e.Size != 5:
		t.Errorf("e.Size = %v, want 5: %s", e.Size, made.body)
	case e.ETag != made.head.Get("ETag"):
		t.Errorf("e.ETag = %q, want %q", e.ETag, made.head.Get("ETag"))
	}
	got := s.want(s.do("GET", "/v1/sessions/s/files/a/b%20c.txt", nil), 200, "")
	switch {
	case got.body != "hello":
		t.Errorf(`got.body = %q, want "hello"`, got.body)
	case got.head.Get("ETag") != e.ETag:
		t.Errorf("header ETag = %q, want %q", got.head.Get("ETag"), e.ETag)
	case got.head.Get("Content-Length") != "5":
		t.Errorf(`header Content-Length = %q, want "5"`, got.head.Get("Content-Length"))
	}
	if got := s.want(s.do("HEAD", "/v1/sessions/s/files/a/b%20c.txt", nil), 200, ""); got.body != "" {
		t.Errorf(`got.body = %q, want "": %+v`, got.body, got)
	} else if got.head.Get("Content-Length") != "5" {
		t.Errorf(`header Content-Length = %q, want "5": %+v`, got.head.Get("Content-Length"), got)
	}
	if again := s.want(s.put("a/b%20c.txt", "other"), 200, ""); again.head.Get("ETag") == e.ETag {
		t.Error("another content has the same tag")
	}
	s.put("z.bin", "x")
	var listed struct{ Files []entry }
	got = s.want(s.do("GET", "/v1/sessions/s/files/?glob=*.txt", nil), 200, "")
	switch err := json.Unmarshal([]byte(got.body), &listed); {
	case err != nil:
		t.Errorf("listed %s: %v", got.body, err)
	case len(listed.Files) != 1:
		t.Errorf("listed %s: len(listed.Files) = %d, want 1: %+v",
			got.body, len(listed.Files), listed.Files)
	case listed.Files[0].Path != "a/b c.txt":
		t.Errorf(`listed %s: listed.Files[0].Path = %q, want "a/b c.txt"`, got.body, listed.Files[0].Path)
	case listed.Files[0].ETag == "":
		t.Errorf("listed %s: listed.Files[0].ETag is empty, want a text", got.body)
	}
	s.want(s.do("DELETE", "/v1/sessions/s/files/z.bin", nil), 204, "")
	s.want(s.do("GET", "/v1/sessions/s/files/z.bin", nil), 404, fault.NotFound)
	s.want(s.do("DELETE", "/v1/sessions/s/files/z.bin", nil), 404, fault.NotFound)
}

func TestRanges(t *testing.T) {
	s := serve(t, nil)
	tag := s.put("f", "0123456789").head.Get("ETag")
	const path = "/v1/sessions/s/files/f"
	for name, c := range map[string]struct {
		headers []string
		status  int
		body    string
	}{
		"a part":                      {[]string{"Range", "bytes=2-4"}, 206, "234"},
		"the end":                     {[]string{"Range", "bytes=-3"}, 206, "789"},
		"of the file that is known":   {[]string{"Range", "bytes=2-4", "If-Range", tag}, 206, "234"},
		"of another file":             {[]string{"Range", "bytes=2-4", "If-Range", `"other"`}, 200, "0123456789"},
		"nonsense units":              {[]string{"Range", "lines=1-2"}, 416, ""},
		"too many parts":              {[]string{"Range", "bytes=" + strings.Repeat("0-0,", 2000) + "0-0"}, 200, "0123456789"},
		"more together than there is": {[]string{"Range", "bytes=0-,0-,0-"}, 200, "0123456789"},
		"what is known already":       {[]string{"If-None-Match", tag}, 304, ""},
		"what it should be":           {[]string{"If-Match", tag}, 200, "0123456789"},
		"what it should not be":       {[]string{"If-Match", `"other"`}, 412, ""},
		"beyond the end":              {[]string{"Range", "bytes=20-30"}, 416, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.do("GET", path, nil, c.headers...)
			if got.status != c.status {
				t.Errorf("got.status = %d, want %d: %q", got.status, c.status, got.body)
			}
			if c.body != "" && got.body != c.body {
				t.Errorf("got.body = %q, want %q", got.body, c.body)
			}
			if c.status >= 400 {
				got.fault(t)
			}
		})
	}
	if got := s.do("GET", path, nil, "Range", "bytes=0-0,9-9"); got.status != 206 {
		t.Errorf("two parts: got.status = %d, want 206: %+v", got.status, got)
	} else if !strings.HasPrefix(got.head.Get("Content-Type"), "multipart/byteranges") {
		t.Errorf(`two parts: header Content-Type = %q, want it to begin with "multipart/byteranges"`,
			got.head.Get("Content-Type"))
	}
}

func TestConditionsOfWriters(t *testing.T) {
	s := serve(t, nil)
	first := s.put("f", "1").head.Get("ETag")
	s.want(s.put("f", "2", "If-None-Match", "*"), 412, fault.Conflict)
	s.want(s.put("new", "2", "If-Match", "*"), 412, fault.Conflict)
	s.want(s.put("new", "2", "If-None-Match", "*"), 201, "")
	s.want(s.put("f", "2", "If-Match", `"x", `+first), 200, "")
	s.want(s.put("f", "3", "If-Match", first), 412, fault.Conflict)
	s.want(s.do("DELETE", "/v1/sessions/s/files/f", nil, "If-Match", first), 412, fault.Conflict)
	if got := s.do("GET", "/v1/sessions/s/files/f", nil); got.body != "2" {
		t.Errorf("the file has %q", got.body)
	}
	s.want(s.put("f", "3", "Content-Range", "bytes 0-0/1"), 400, fault.Invalid)
	s.want(s.put("f", "3", "Content-Encoding", "gzip"), 415, fault.Invalid)
}

func TestOfManyWritersWhoExpectTheSameOneWins(t *testing.T) {
	s := serve(t, nil)
	tag := s.put("f", "0").head.Get("ETag")
	var won atomic.Int32
	var winner atomic.Value
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			content := strings.Repeat(fmt.Sprint(k), 100_000)
			switch got := s.put("f", content, "If-Match", tag); got.status {
			case 200:
				won.Add(1)
				winner.Store(content)
			case 412:
			default:
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if n := won.Load(); n != 1 {
		t.Fatalf("%d won", n)
	}
	if got := s.do("GET", "/v1/sessions/s/files/f", nil); got.body != winner.Load() {
		t.Error("the file is not the winner's")
	}
}

func TestALargeFileMovesWithLittleMemory(t *testing.T) {
	s := serve(t, nil)
	const size = 20 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.want(s.do("PUT", "/v1/sessions/s/files/large", io.LimitReader(archivetest.Zeros{}, size)), 201, "") // chunked
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/sessions/s/files/large", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Principal", "alice")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Errorf("got error %v, want none", err)
	} else if n != size {
		t.Errorf("n = %d, want %d", n, size)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated in all for a file of %d", grown, size)
	}
}

func TestAnUploadThatReachesTheDiskLimitLeavesTheOldFile(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "old")
	for name, body := range map[string]io.Reader{
		"unannounced": io.LimitReader(archivetest.Zeros{}, disk+1),
		"announced":   bytes.NewReader(make([]byte, disk+1)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.tryPut("f", body)
			if err == nil { // else the server hung up while it was still being sent to
				s.want(got, 507, fault.Exhausted)
			}
			if got := s.do("GET", "/v1/sessions/s/files/f", nil); got.body != "old" {
				t.Errorf("the file has %d bytes", len(got.body))
			}
		})
	}
	s.want(s.do("PUT", "/v1/sessions/s/files/g", io.LimitReader(archivetest.Zeros{}, disk/2)), 201, "") // nothing was left behind
}

func (s *server) tryPut(path string, body io.Reader) (answered, error) {
	r, err := http.NewRequestWithContext(s.Context(), "PUT", s.url+"/v1/sessions/s/files/"+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("X-Principal", "alice")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, string(text)}, err
}

func TestABodyThatBreaksOffLeavesTheOldFile(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "old")
	h, err := New(Config{Sessions: s.sessions})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"the client hung up": {io.ErrUnexpectedEOF, 400},
		"it is too large":    {&http.MaxBytesError{Limit: 5}, 413},
		"it is too slow":     {os.ErrDeadlineExceeded, 408},
		"a layer says why":   {fault.New(fault.Denied, "no"), 403},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"files/f", "archive"} {
				r := httptest.NewRequest("PUT", "/v1/sessions/s/"+path, io.MultiReader(io.LimitReader(archivetest.Zeros{}, 100), broken{c.err}))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r.WithContext(auth.With(t.Context(), &auth.Principal{ID: "alice"})))
				if w.Code != c.status {
					t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, c.status)
				}
			}
			if got := s.do("GET", "/v1/sessions/s/files/f", nil); got.body != "old" {
				t.Errorf("the file has %q", got.body)
			}
		})
	}
}

// Read makes a broken one a body that breaks.
func (b broken) Read([]byte) (int, error) { return 0, b.error }

func TestNoPathLeavesTheWorkspace(t *testing.T) {
	s := serve(t, nil)
	outside := filepath.Join(s.state, "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, done, err := s.sessions.Files("alice", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := files.Write("real", []byte("x")); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(s.state, "owners", "*", "s", "workspace", "real"))
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	if len(found) != 1 {
		t.Fatalf("len(found) = %d, want 1: %q", len(found), found)
	}
	if err := os.Symlink(outside, filepath.Join(filepath.Dir(found[0]), "link")); err != nil {
		t.Skip("no links can be made here")
	}
	if err := os.Symlink(s.state, filepath.Join(filepath.Dir(found[0]), "dir")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"../outside", "..%2foutside", "%2e%2e/outside", "%2e%2e%2f%2e%2e%2foutside", "a/../../outside", "..%5coutside", "%2fetc%2fpasswd", "/etc/passwd",
		"c:%5cwindows", "C:x", "link", "dir/outside", "a%00b", "con", "x%ff", "a//../..//outside", ".", "..", "%2e", "./",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if method == "PUT" && path == "link" || method == "DELETE" && path == "link" {
				continue // the link itself is replaced, or removed
			}
			got := s.do(method, "/v1/sessions/s/files/"+path, strings.NewReader("mine"))
			if got.status < 400 {
				t.Errorf("%s %s: got.status = %d, want at least 400: %s", method, path, got.status, got.body)
			} else if strings.Contains(got.body, "secret") {
				t.Errorf(`%s %s: got.body = %q, want no "secret" in it`, method, path, got.body)
			}
		}
	}
	s.want(s.put("link", "mine"), 200, "")
	if data, err := os.ReadFile(outside); err != nil {
		t.Errorf("outside: got error %v, want none", err)
	} else if string(data) != "secret" {
		t.Errorf(`outside: data = %q, want "secret"`, string(data))
	}
}

func TestSomebodyElsesSessionIsLikeNone(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "mine")
	for _, c := range []struct{ method, path, body string }{
		{"GET", "files/f", ""}, {"HEAD", "files/f", ""}, {"PUT", "files/f", "x"}, {"DELETE", "files/f", ""}, {"GET", "files/", ""}, {"GET", "archive", ""}, {"PUT", "archive", "x"},
		{"POST", "links", `{"path":"f"}`},
	} {
		theirs := s.do(c.method, "/v1/sessions/s/"+c.path, strings.NewReader(c.body), "X-Principal", "mallory", "Content-Type", "application/json")
		none := s.do(c.method, "/v1/sessions/s/"+c.path, strings.NewReader(c.body), "X-Principal", "stranger", "Content-Type", "application/json")
		theirs.head.Del("Date")
		none.head.Del("Date")
		if theirs.status != 404 {
			t.Errorf("%s %s: theirs.status = %d, want 404: %+v", c.method, c.path, theirs.status, theirs)
		} else if fmt.Sprint(theirs) != fmt.Sprint(none) {
			t.Errorf("%s %s: fmt.Sprint(theirs) = %q, want %q", c.method, c.path, fmt.Sprint(theirs), fmt.Sprint(none))
		}
	}
	s.want(s.do("GET", "/v1/sessions/s/files/f", nil, "X-Principal", ""), 403, fault.Denied)
	s.want(s.do("GET", "/v1/sessions/s/files/f", nil, "X-Principal", "no files"), 403, fault.Denied)
}

func TestPathsAndMethodsThatAreNot(t *testing.T) {
	s := serve(t, nil)
	for _, path := range []string{"/v1/", "/v1/sessions/", "/v1/sessions/s", "/v1/sessions/s/other", "/v1/sessions/s/archive/x", "/v1/other"} {
		s.want(s.do("GET", path, nil), 404, fault.NotFound)
	}
	for path, allow := range map[string]string{"files/f": "GET, HEAD, PUT, DELETE", "files/": "GET, HEAD", "files": "GET, HEAD", "archive": "GET, HEAD, PUT", "links": "POST"} {
		if got := s.want(s.do("PATCH", "/v1/sessions/s/"+path, nil), 405, fault.Invalid); got.head.Get("Allow") != allow {
			t.Errorf("%s allows %q", path, got.head.Get("Allow"))
		}
	}
	s.want(s.do("GET", "/v1/sessions/"+strings.Repeat("x", 200)+"/files/", nil), 400, fault.Invalid)
	s.want(s.do("GET", "/v1/sessions/s/files/?glob=%5B", nil), 400, fault.Invalid)
}

func TestABrowserExecutesNothing(t *testing.T) {
	s := serve(t, nil)
	for name, kind := range map[string]string{
		"page.html": "application/octet-stream", "page.HTM": "application/octet-stream", "image.svg": "application/octet-stream", "x.xml": "application/octet-stream",
		"script.js": "application/octet-stream", "none": "application/octet-stream", "a.txt": "text/plain; charset=utf-8", "a.pdf": "application/pdf", "picture.PNG": "image/png",
	} {
		s.put(name, "<script>alert(1)</script>")
		h := s.do("GET", "/v1/sessions/s/files/"+name, nil).head
		disposition := "attachment"
		if strings.HasPrefix(kind, "image/") {
			disposition = "inline"
		}
		switch {
		case h.Get("Content-Type") != kind:
			t.Errorf("%s: header Content-Type = %q, want %q", name, h.Get("Content-Type"), kind)
		case h.Get("X-Content-Type-Options") != "nosniff":
			t.Errorf(`%s: header X-Content-Type-Options = %q, want "nosniff"`,
				name, h.Get("X-Content-Type-Options"))
		case h.Get("Content-Security-Policy") != "sandbox; default-src 'none'; frame-ancestors 'none'":
			t.Errorf("%s: header Content-Security-Policy = %q, want %q",
				name, h.Get("Content-Security-Policy"), "sandbox; default-src 'none'; frame-ancestors 'none'")
		case !strings.HasPrefix(h.Get("Content-Disposition"), disposition+"; "):
			t.Errorf("%s: header Content-Disposition = %q, want prefix %q",
				name, h.Get("Content-Disposition"), disposition+"; ")
		}
	}
}

func TestDispositions(t *testing.T) {
	for name, want := range map[string]string{
		"plain.txt":               `attachment; filename="plain.txt"`,
		`a"; filename="evil.exe`:  `attachment; filename="a__ filename__evil.exe"; filename*=UTF-8''a%22%3B%20filename%3D%22evil.exe`,
		"line\r\nSet-Cookie: a=b": `attachment; filename="line__Set-Cookie_ a_b"; filename*=UTF-8''line%0D%0ASet-Cookie%3A%20a%3Db`,
		"größe €.txt":             `attachment; filename="gr__e _.txt"; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%E2%82%AC.txt`,
		"100%.txt":                `attachment; filename="100_.txt"; filename*=UTF-8''100%25.txt`,
		"back\\slash'quote*.txt":  `attachment; filename="back_slash_quote_.txt"; filename*=UTF-8''back%5Cslash%27quote%2A.txt`,
		"\u202egnp.exe":           `attachment; filename="_gnp.exe"; filename*=UTF-8''%E2%80%AEgnp.exe`,
	} {
		if got := disposition("attachment", name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
	s := serve(t, nil)
	s.want(s.put("line%0D%0AX-Evil:%201%22.txt", "x"), 201, "")
	got := s.want(s.do("GET", "/v1/sessions/s/files/line%0D%0AX-Evil:%201%22.txt", nil), 200, "")
	if got.head.Get("X-Evil") != "" {
		t.Errorf(`the headers: header X-Evil = %q, want "": %v`, got.head.Get("X-Evil"), got.head)
	} else if !strings.Contains(got.head.Get("Content-Disposition"), "%0D%0A") {
		t.Errorf("the headers: header Content-Disposition = %q, want %q in it",
			got.head.Get("Content-Disposition"), "%0D%0A")
	}
}

func TestAFIFOIsNotOpened(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "x")
	found, _ := filepath.Glob(filepath.Join(s.state, "owners", "*", "s", "workspace", "f"))
	if len(found) != 1 || !makeFIFO(found[0]+"ifo") {
		t.Skip("no FIFO can be made here")
	}
	s.want(s.do("GET", "/v1/sessions/s/files/fifo", nil), 403, fault.Denied)
	if got := s.want(s.do("GET", "/v1/sessions/s/files/", nil), 200, ""); strings.Contains(got.body, "fifo") {
		t.Errorf("listed %s", got.body)
	}
}

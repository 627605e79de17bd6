package secret

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	"paddock/internal/fault"
)

// answered is an answer as a program gets it, whose body comes in parts of n bytes.
func answered(t *testing.T, e *Engine, resp *http.Response, body string, n int) (string, error) {
	t.Helper()
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Body = io.NopCloser(&chunks{text: body, n: n})
	if err := e.Response(resp); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(text), err
}

type chunks struct {
	text string
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p, c.text[:min(len(c.text), c.n)])
	c.text = c.text[n:]
	return n, nil
}

// wider is UTF-16.
func wider(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

func TestAValueComesBackNowhereInNoForm(t *testing.T) {
	s := newSession(t)
	tok := s.vars["TOKEN"]
	for form, text := range map[string]string{
		"as it is": token, "capitals": strings.ToUpper(token), "small": strings.ToLower(token), "base64": b64(token), "base64 after x": b64("x" + token),
		"base32": base32.StdEncoding.EncodeToString([]byte("u:" + token)), "base32 in small": strings.ToLower(base32.StdEncoding.EncodeToString([]byte(token))),
		"base32hex": base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(token)), "hex": strings.ToUpper(hex.EncodeToString([]byte(token))),
		"UTF-16": wider(token), "base64 of UTF-16": b64(wider(token)), "percent": escapedAll(token, "%%%02X"), "entities": escapedAll(token, "&#%d;"),
		"mail": escapedAll(token, "=%02X"), "twice": escapedAll(escapedAll(token, "%%%02x"), "%%%02X"),
	} {
		for n := 1; n <= len(text); n++ {
			switch got, err := answered(t, s.Engine, &http.Response{}, "a "+text+" b", n); {
			case err != nil:
				t.Fatalf("%s, in parts of %d: %v", form, n, err)
			case !strings.Contains(got, tok):
				t.Fatalf("%s, in parts of %d: got = %q, want %q in it", form, n, got, tok)
			case strings.Contains(strings.ToLower(got), strings.ToLower(text)):
				t.Fatalf("%s, in parts of %d: strings.ToLower(got) = %q, want no %q in it",
					form, n, strings.ToLower(got), strings.ToLower(text))
			}
		}
		if got, err := answered(t, s.Engine, &http.Response{}, `{"a":"`+text+`"}`, 7); err != nil {
			t.Errorf("%s, in JSON: got error %v, want none", form, err)
		} else if !strings.Contains(got, tok) {
			t.Errorf("%s, in JSON: got %q, want %q in it", form, got, tok)
		}
		resp := &http.Response{Header: http.Header{"Location": {"https://evil.test/" + text}, "Set-Cookie": {"a=" + text}}, Status: "200 " + text, Trailer: http.Header{"X-After": {text}}}
		if _, err := answered(t, s.Engine, resp, "body", 9); err != nil {
			t.Fatal(err)
		}
		for where, got := range map[string]string{"Location": resp.Header.Get("Location"), "a cookie": resp.Header.Get("Set-Cookie"), "the status": resp.Status, "what follows": resp.Trailer.Get("X-After")} {
			if !strings.Contains(got, tok) {
				t.Errorf("%s, in %s: got %q, want %q in it", form, where, got, tok)
			} else if strings.Contains(got, text) {
				t.Errorf("%s, in %s: got %q, want no %q in it", form, where, got, text)
			}
		}
		with, err := s.Redactor()
		if err != nil {
			t.Fatal(err)
		}
		if got := with.String("tells " + text); !strings.Contains(got, tok) {
			t.Errorf("%s, in a tool's answer: %q", form, got)
		}
	}
}

func escapedAll(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func TestACompressedValueOfWhichNobodyToldIsNotGiven(t *testing.T) {
	s := newSession(t)
	random := rand.NewChaCha8([32]byte{2})
	noise := make([]byte, 300<<10)
	_, _ = random.Read(noise)
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		for about, text := range map[string]string{"alone": "it is " + token, "after noise": string(noise) + b64(token), "twice": compressed(t, "gzip", "it is "+token), "thrice": compressed(t, "zstd", compressed(t, "gzip", token))} {
			body := compressed(t, coding, text)
			for _, n := range []int{1, 3, 1000, 1 << 20} {
				if n < 100 && len(body) > 1<<10 {
					continue
				}
				got, err := answered(t, s.Engine, &http.Response{}, body, n)
				is(t, err, fault.Denied, "the value of a secret")
				if about != "after noise" && got != "" {
					t.Errorf("%s, %s, in parts of %d: %d of %d bytes were given", coding, about, n, len(got), len(body))
				}
			}
			// The header says something else.
			if coding == "gzip" {
				resp := &http.Response{Header: http.Header{"Content-Encoding": {"zstd"}}}
				_, err := answered(t, s.Engine, resp, compressed(t, "zstd", body), 100)
				is(t, err, fault.Denied, "the value of a secret")
			}
			honest := compressed(t, coding, strings.ReplaceAll(text, token, "nothing")+"ok")
			if about == "twice" || about == "thrice" {
				honest = compressed(t, coding, compressed(t, "gzip", strings.Repeat("an archive ", 9000)))
			}
			if about == "after noise" {
				honest = compressed(t, coding, string(noise))
			}
			for _, body := range []string{honest, honest + "and more", honest + honest, honest[:len(honest)/2], "x^2 is none", "\x1f\x8b\x08\xff broken", "\x1f", ""} {
				if got, err := answered(t, s.Engine, &http.Response{}, body, 1+len(body)/7); err != nil {
					t.Errorf("%s, %s: got error %v, want none", coding, about, err)
				} else if got != body {
					t.Errorf("%s, %s: got %d other bytes, want the %d that were sent", coding, about, len(got), len(body))
				}
			}
			if _, err := answered(t, s.Engine, &http.Response{}, honest+compressed(t, "zstd", token), 50); coding == "deflate" && fault.Of(err).Kind != fault.Denied {
				t.Errorf("what follows another is given: %v", err)
			}
		}
	}
	far := &http.Response{Request: request("GET", "https://elsewhere.test/", "")}
	body := compressed(t, "gzip", token)
	if got, err := answered(t, s.Engine, far, body, 9); err != nil {
		t.Errorf("a host that knows no value: got error %v, want none", err)
	} else if got != body {
		t.Errorf("a host that knows no value: got %q, want the body as it was sent", got)
	}
}

// A host may flush after each character of a value, or let nothing come for long.
func TestNothingOfACompressedValueIsGiven(t *testing.T) {
	s := newSession(t)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, c := range "an event\n" + token {
		_, _ = w.Write([]byte(string(c)))
		_ = w.Flush()
	}
	whole := b.Len()
	for n := 1; n < 40; n++ {
		got, err := answered(t, s.Engine, &http.Response{}, b.String(), n)
		is(t, err, fault.Denied, "the value of a secret")
		z, err := gzip.NewReader(strings.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := io.ReadAll(z)
		if rest, found := strings.CutPrefix(string(plain), "an event\n"); !found {
			t.Fatalf("in parts of %d: of %d bytes %q came, want it to begin with the event", n, whole, plain)
		} else if len(rest) > maxBegun {
			t.Fatalf("in parts of %d: %d bytes of the value came, want at most %d: %q", n, len(rest), maxBegun, plain)
		}
	}
	// Blocks that hold nothing, without end.
	head := b.String()[:10]
	_, err := answered(t, s.Engine, &http.Response{}, head+strings.Repeat("\x02\x08\x20\x80\x00", 1<<20), 4096)
	is(t, err, fault.Exhausted, "from which nothing comes")
	var zeros bytes.Buffer
	w = gzip.NewWriter(&zeros)
	for range 100 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Close()
	_, err = answered(t, s.Engine, &http.Response{}, zeros.String(), 4096)
	is(t, err, fault.Exhausted, "100 times as large")
}

// A program chooses how often a value is written into a request.
func TestWhatIsPutInIsBounded(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "LONG", strings.Repeat("v", maxValue), []string{"api.example.com"}, []string{"body", "header"})
	placeholder := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"LONG"}})["LONG"]
	e := s.Engine("s1")
	for about, r := range map[string]*http.Request{
		"a body": request("POST", "https://api.example.com/", strings.Repeat(placeholder, 1000)), "a header": request("GET", "https://api.example.com/", "", "X-A", strings.Repeat(placeholder, 1000)),
	} {
		if err := e.Request(r); fault.Of(err).Kind != fault.Exhausted {
			t.Errorf("%s: %v", about, err)
		}
	}
	r := request("POST", "https://api.example.com/", strings.Repeat(placeholder, 1000))
	r.ContentLength = -1
	if err := e.Request(r); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r.Body)
	is(t, err, fault.Exhausted, "in one request")
	if n > maxFilled {
		t.Errorf("%d bytes were sent", n)
	}
}

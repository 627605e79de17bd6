package secret

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCredentialsOfAServerThatEchoesThem(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("X-Key"))
		fmt.Fprintf(w, "data: %s %s %s %s\n\n", r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.Header.Get("Accept"), r.Header.Get("Mcp-Session-Id"))
	}))
	defer server.Close()
	c := &http.Client{Transport: Guard(http.DefaultTransport, []string{"x-key", "Accept", "X-Short"}, "")}
	for authorization, want := range map[string]string{
		"Bearer " + token: "Bearer (hidden)", "Basic " + b64("user:"+token): "Basic (hidden)", token: "(hidden)", "": "", "Bearer abc": "Bearer abc",
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": authorization, "X-Key": "another-secret", "Accept": "text/event-stream", "X-Short": "a", "Mcp-Session-Id": "session-12345"} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch got := string(text); {
		case err != nil:
			t.Errorf("%s: %v", authorization, err)
		case got != "data: "+want+" (hidden) text/event-stream session-12345\n\n":
			t.Errorf("%s: got = %q, want %q",
				authorization, got, "data: "+want+" (hidden) text/event-stream session-12345\n\n")
		case resp.Header.Get("X-Echo") != "(hidden)":
			t.Errorf(`%s: header X-Echo = %q, want "(hidden)"`, authorization, resp.Header.Get("X-Echo"))
		}
		if strings.Contains(r.Header.Get("Authorization"), hidden) {
			t.Error("the request was changed")
		}
	}
}

// A server may take a header apart, and say what it found.
func TestPartsOfHeadersAreCredentialsToo(t *testing.T) {
	c := &http.Client{Transport: Guard(http.DefaultTransport, []string{"Cookie", "X-Key", "X-Toolsets", "X-Config"}, "")}
	for _, sent := range []struct{ name, value, says, want string }{
		{"Cookie", "sid=" + token + "; theme=dark-mode-on; q=abc", "sid " + token + ", dark-mode-on, q abc", "sid (hidden), (hidden), q abc"},
		{"Cookie", `sid="a%20long%20value"`, "a long value, a%20long%20value", "(hidden), (hidden)"},
		{"X-Key", "Bearer " + token, "Bearer " + token + ", " + token, "(hidden), (hidden)"},
		{"X-Config", "Token only-letters", "it is only-letters", "it is (hidden)"},
		{"X-Key", "firstkeys, second-key", "second-key and firstkeys", "(hidden) and (hidden)"},
		{"X-Key", "a-user:" + b64("1234567"), strings.TrimRight("a-user:"+b64("1234567"), "="), "(hidden)"},
		{"X-Config", "Bearer first-key, Token second-key", "second-key and first-key", "(hidden) and (hidden)"},
		{"X-Config", "mode=readonly, id=" + token, "a readonly " + token, "a readonly (hidden)"},
		{"X-Toolsets", "repositories,pull_requests", "pull_requests of repositories", "pull_requests of repositories"},
		{"Authorization", `Digest username="somebody", realm="the example", response="0123456789abcdef"`, "somebody: the example: 0123456789abcdef", "somebody: the example: (hidden)"},
		{"Authorization", "Custom a=" + token + ";b=another-key", token + " another-key", "(hidden) (hidden)"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, out, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if r.Header.Get(sent.name) != sent.value {
				t.Errorf("the server gets %q", r.Header)
			}
			fmt.Fprintf(out, "HTTP/1.1 200 OK %s\r\nX-Echo: %s\r\nSet-Cookie: %s\r\nConnection: close\r\n\r\n%s", sent.says, sent.says, sent.says, sent.says)
			_ = out.Flush()
		}))
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sent.name, sent.value)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		server.Close()
		switch {
		case err != nil:
			t.Error(err)
		case string(text) != sent.want:
			t.Errorf("text = %q, want %q", string(text), sent.want)
		case resp.Header.Get("X-Echo") != sent.want:
			t.Errorf("header X-Echo = %q, want %q", resp.Header.Get("X-Echo"), sent.want)
		case resp.Header.Get("Set-Cookie") != sent.want:
			t.Errorf("header Set-Cookie = %q, want %q", resp.Header.Get("Set-Cookie"), sent.want)
		case resp.Status != "200 OK "+sent.want:
			t.Errorf("resp.Status = %q, want %q", resp.Status, "200 OK "+sent.want)
		}
	}
}

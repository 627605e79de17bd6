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
	c := &http.Client{Transport: Guard(http.DefaultTransport, []string{"x-key", "Accept", "X-Short"})}
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
		if got := string(text); err != nil || got != "data: "+want+" (hidden) text/event-stream session-12345\n\n" || resp.Header.Get("X-Echo") != "(hidden)" {
			t.Errorf("%s: it tells %q, %v", authorization, got, resp.Header)
		}
		if strings.Contains(r.Header.Get("Authorization"), hidden) {
			t.Error("the request was changed")
		}
	}
}

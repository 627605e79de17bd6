package image

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestPlainHTTPIsForLoopbackAndForWhatIsNamed(t *testing.T) {
	var asked []string
	inner := roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Scheme+"://"+r.URL.Host)
		return &http.Response{StatusCode: http.StatusTeapot, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})
	s := store(t, func(c *Config) { c.Transport, c.Insecure = inner, []string{"old.test:5000"} })
	for url, want := range map[string]bool{
		"https://anywhere.test/": true, "http://anywhere.test/": false, "http://127.0.0.1:5000/": true, "http://127.9.9.9/": true, "http://[::1]:5000/": true,
		"http://localhost:5000/": true, "http://old.test:5000/": true, "http://old.test/": false, "http://10.0.0.1:5000/": false, "http://[fe80::1]/": false,
		"http://127.0.0.1.evil.test/": false, "http://localhost.evil.test/": false, "http://2130706433/": false, "http://0.0.0.0/": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := len(asked)
		resp, err := s.guard().RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		if got := err == nil && len(asked) == before+1; got != want {
			t.Errorf("%s: got %v, want %v", url, got, want)
		} else if err != nil && fault.KindOf(err) != fault.Denied {
			t.Errorf("%s: got %v, want no error or one of kind %v", url, err, fault.Denied)
		}
	}
	for ref, want := range map[string]bool{"old.test:5000/a": true, "10.1.2.3:5000/a": false, "other.test/a": false} {
		asked = nil
		_, _ = s.Pull(t.Context(), Request{Reference: ref})
		if got := slices.ContainsFunc(asked, func(u string) bool { return strings.HasPrefix(u, "http:") }); got != want {
			t.Errorf("%s was asked for at %q", ref, asked)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

package secret

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"paddock/internal/secret/redact"
)

// Guard sends requests by base and takes out of the answers the credentials that went with
// them: what Authorization held, whoever put it in, and the headers of these names. They
// are found in all the forms that an [Engine] finds, in the header and the body, and
// "(hidden)" is put in their place. Values of less than 8 bytes, and headers that no
// credentials stand in, are left alone.
func Guard(base http.RoundTripper, names []string) http.RoundTripper {
	g := &guard{base: base}
	for _, name := range append([]string{"Authorization"}, names...) {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(told, name) || name == "Cookie" {
			g.names = append(g.names, name)
		}
	}
	return g
}

type guard struct {
	base  http.RoundTripper
	names []string

	mu   sync.Mutex // guards what follows
	last string     // what the redactor was made for
	with *redact.Redactor
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	with := g.redactor(r.Header)
	if with != nil && r.Header.Get("Accept-Encoding") != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept-Encoding", knownOf(strings.Join(r.Header.Values("Accept-Encoding"), ",")))
	}
	resp, err := g.base.RoundTrip(r)
	if err != nil || with == nil {
		return resp, err
	}
	if err := clean(with, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// redactor is for the credentials of one request, which mostly are those of the last.
func (g *guard) redactor(h http.Header) *redact.Redactor {
	var texts []redact.Text
	key := ""
	for _, name := range g.names {
		for _, value := range h.Values(name) {
			for _, v := range credentials(name, value) {
				texts = append(texts, redact.Text{Value: []byte(v), Instead: hidden})
				key += v + "\x00"
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if key != g.last {
		g.last, g.with = key, redact.New(texts)
	}
	return g.with
}

// credentials are what is secret of a header's value.
func credentials(name, value string) (all []string) {
	parts := []string{value}
	if scheme, rest, found := strings.Cut(value, " "); found && name == "Authorization" {
		parts = []string{strings.TrimSpace(rest)}
		if login, ok := decodeLogin(rest); ok && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(login, ":")
			parts = append(parts, password)
		}
	}
	for _, p := range parts {
		if len(p) >= minValue && len(p) <= maxValue {
			all = append(all, p)
		}
	}
	return all
}

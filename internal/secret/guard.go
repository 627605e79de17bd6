package secret

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"paddock/internal/secret/redact"
)

// Guard sends requests by base and takes out of the answers the credentials that went with
// them: what Authorization held, whoever put it in, and the headers of these names, whole
// and each cookie, parameter and item of a list by itself, with or without its scheme. They
// are found in all the forms that an [Engine] finds, in the status, the header and the
// body, and "(hidden)" is put in their place. Values of less than 8 bytes, headers that no
// credentials stand in, and mere words of a list in a header whose name tells of no
// credentials, are left alone. So are taken out those of the server's own URL (see
// [InURL]); where the server names a URL with such a parameter, requests there have it.
func Guard(base http.RoundTripper, names []string, server string) http.RoundTripper {
	g := &guard{base: base, own: InURL(server)}
	if u, err := url.Parse(server); err == nil && len(g.own) > 0 {
		g.query, g.origin = u.Query(), u.Scheme+"://"+u.Host
	}
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
	own   []string   // credentials of the server's URL
	query url.Values // its parameters
	// origin is whom these are for: its scheme and host.
	origin string

	mu   sync.Mutex // guards what follows
	last string     // what the redactor was made for
	with *redact.Redactor
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	with := g.redactor(r.Header)
	r = g.whole(r)
	if with != nil && r.Header.Get("Accept-Encoding") != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Accept-Encoding", knownOf(strings.Join(r.Header.Values("Accept-Encoding"), ",")))
	}
	resp, err := g.base.RoundTrip(r)
	if err != nil || with == nil {
		return resp, err
	}
	if err := clean(with, resp, true); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// whole gives a request with the parameters that were taken out of a URL which the server
// had named at its own origin: it may repeat those of its own.
func (g *guard) whole(r *http.Request) *http.Request {
	if len(g.query) == 0 || r.URL.Scheme+"://"+r.URL.Host != g.origin || !strings.Contains(r.URL.RawQuery, "hidden") {
		return r
	}
	pairs, changed := strings.Split(r.URL.RawQuery, "&"), false
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		name, _ := url.QueryUnescape(key) // what cannot be read names none of ours
		if plain, err := url.QueryUnescape(value); err == nil && plain == hidden && tells(name) && g.query.Has(name) {
			pairs[i], changed = key+"="+url.QueryEscape(g.query.Get(name)), true
		}
	}
	if changed {
		r = r.Clone(r.Context())
		r.URL.RawQuery = strings.Join(pairs, "&")
	}
	return r
}

// redactor is for the credentials of one request, which mostly are those of the last.
func (g *guard) redactor(h http.Header) *redact.Redactor {
	var texts []redact.Text
	key := ""
	for _, v := range g.own {
		texts = append(texts, redact.Text{Value: []byte(v), Instead: hidden})
		key += v + "\x00"
	}
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

// credentials are what is secret of a header's value: the value, and those of its parts
// that may be credentials by themselves. Authorization's scheme is none.
func credentials(name, value string) (all []string) {
	add := func(part string) {
		if len(part) >= minValue && len(part) <= maxValue && !slices.Contains(all, part) {
			all = append(all, part)
		}
	}
	scheme, rest, found := strings.Cut(strings.TrimSpace(value), " ")
	known := found && (name == "Authorization" || slices.Contains(schemes, strings.ToLower(scheme)))
	if !known || name != "Authorization" {
		add(value)
	}
	if known {
		value = strings.TrimSpace(rest)
		add(value)
		if login, ok := decodeLogin(rest); ok && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(login, ":")
			add(password)
		}
	}
	secretive := known || slices.ContainsFunc(secretives, func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
	for item := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == ';' }) {
		part, sure := credential(item)
		if !secretive && !sure && !noWord(part) {
			continue
		}
		add(part)
		if plain, err := url.PathUnescape(part); err == nil {
			add(plain)
		}
	}
	return all
}

var (
	// schemes are what stands before credentials, wherever they stand.
	schemes = []string{"apikey", "api-key", "basic", "bearer", "digest", "jwt", "key", "negotiate", "token"}
	// secretives are words in the names of headers all of whose parts are secret.
	secretives = []string{"auth", "cookie", "credential", "jwt", "key", "pass", "secret", "session", "signature", "token"}
	// open are parameters, of Authorization above all, that are none.
	open = []string{"algorithm", "charset", "domain", "headers", "path", "qop", "realm", "scope", "signedheaders", "uri", "username"}
)

// credential is what may be one of an item of a list, which may have a name or a scheme,
// and quotes. It is surely one that has a scheme; "": it is none.
func credential(item string) (part string, sure bool) {
	item = strings.TrimSpace(item)
	if scheme, rest, found := strings.Cut(item, " "); found && slices.Contains(schemes, strings.ToLower(scheme)) {
		item, sure = strings.TrimSpace(rest), true
	}
	key, value, named := strings.Cut(item, "=")
	if named && strings.Trim(value, "=") != "" { // else that is how base64 ends
		if slices.Contains(open, strings.ToLower(strings.TrimSpace(key))) {
			return "", false
		}
		item = value
	}
	return strings.TrimRight(strings.Trim(strings.TrimSpace(item), `"`), "="), sure
}

// noWord tells of a part of a header, which may be a list of anything, that it is not a word:
// words of lists stand in many texts.
func noWord(part string) bool {
	return strings.ContainsAny(part, "0123456789") && strings.ContainsFunc(part, unicode.IsLetter)
}

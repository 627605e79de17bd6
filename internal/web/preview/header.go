package preview

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// cleanRequest takes out of a request what a program is not to see: whatever lets
// somebody in here, and what others say of where it comes from.
func cleanRequest(h http.Header) {
	for name := range h {
		if as := asRead(name); slices.Contains(notShown, as) || strings.HasPrefix(as, "x-forwarded-") {
			delete(h, name)
		}
	}
	if strings.Contains(h.Get("Referer"), ownPath) { // some clients tell of the link
		h.Del("Referer")
	}
	if up := h.Get("Upgrade"); up != "" && !isWebSocket(up) {
		h.Del("Upgrade")
		h.Del("Connection")
	}
	lines := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range lines {
		if line = withoutOurs(line); line != "" {
			h.Add("Cookie", line)
		}
	}
}

// notShown are headers that a program does not see, as [asRead] gives their names; those
// that begin with x-forwarded- are more of them.
var notShown = []string{"authorization", "proxy-authorization", "forwarded", "x-real-ip", "via"}

// asRead is a header's name, in lower case, as a program may take it: CGI, WSGI and what
// came after them make one character of all that is not a letter or digit, so that
// X_Forwarded_For is to them what X-Forwarded-For is.
func asRead(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, name)
}

// withoutOurs is a Cookie header without the cookie that lets in.
func withoutOurs(line string) string {
	var kept []string
	for pair := range strings.SplitSeq(line, ";") {
		name, _, _ := strings.Cut(pair, "=")
		if pair = strings.TrimSpace(pair); pair != "" && !ours(strings.TrimSpace(name)) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}

// beyond are headers of answers that reach beyond the origin that they come from: other
// hosts of the site, other ports of the host, the browser's reports and logins, and the
// proxies and caches between.
var beyond = []string{
	"Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Expect-Ct",
	"Nel", "Report-To", "Reporting-Endpoints", "Service-Worker-Allowed", "Use-As-Dictionary", "Activate-Storage-Access",
	"Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Proxy-Authentication-Info",
	"Secure-Session-Registration", "Sec-Session-Registration", "Set-Login",
	"Cdn-Cache-Control", "Surrogate-Control", "Surrogate-Key", "Cache-Tag", "X-Request-Id", "Trailer",
}

// beyondPrefixes are those of headers that are orders to proxies, such as X-Accel-Redirect.
var beyondPrefixes = []string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Litespeed-", "X-Reproxy-", "Surrogate-", "Access-Control-Allow-Private-Network"}

// cleanAnswer makes a program's answer one that means nothing beyond its origin.
func cleanAnswer(res *http.Response) error {
	h, v := res.Header, visitOf(res.Request.Context())
	for _, name := range beyond {
		h.Del(name)
	}
	for name := range h {
		if startsWithAny(name, beyondPrefixes) {
			delete(h, name)
		}
	}
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range cookies {
		if line, ok := withinHost(line); ok {
			h.Add("Set-Cookie", line)
		}
	}
	if to := h.Get("Location"); to != "" {
		h.Set("Location", atHome(to, v.preview.Port))
	}
	keepPrivate(h)
	// No other page shows it in a frame, or shares a process with it.
	h.Add("Content-Security-Policy", "frame-ancestors 'self'")
	h.Set("Origin-Agent-Cluster", "?1")
	setDefault(h, "Cross-Origin-Resource-Policy", "same-origin")
	// A page elsewhere that opens it in a window has no hold on that window.
	setDefault(h, "Cross-Origin-Opener-Policy", "same-origin-allow-popups")
	setDefault(h, "Referrer-Policy", "same-origin") // the address is nobody else's business
	return nil
}

func startsWithAny(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, textproto.CanonicalMIMEHeaderKey(p)) {
			return true
		}
	}
	return false
}

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" {
		h.Set(name, value)
	}
}

// withinHost is a Set-Cookie header whose cookie is of this host alone; false: it is
// the cookie that lets in, which is not the program's to set.
func withinHost(line string) (string, bool) {
	parts := strings.Split(line, ";")
	name, _, named := strings.Cut(parts[0], "=")
	if name = strings.TrimSpace(name); !named || ours(name) {
		return "", false // one without a name has its name in its value, as some read it
	}
	kept := parts[:1]
	for _, part := range parts[1:] {
		attribute, _, _ := strings.Cut(part, "=")
		if !strings.EqualFold(strings.TrimSpace(attribute), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";"), name != ""
}

// atHome is where a program sends the browser to: what it takes for its own address is
// the preview's.
func atHome(location string, port uint16) string {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "" || u.Port() != strconv.Itoa(int(port)) {
		return location
	}
	a, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !a.IsLoopback() && !a.IsUnspecified()) {
		return location
	}
	home := &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	text := home.String()
	if !strings.HasPrefix(text, "/") {
		return "/" + text
	}
	return "/" + strings.TrimLeft(text, `/\`)
}

// keepPrivate has no cache but the browser's keep an answer.
func keepPrivate(h http.Header) {
	kept := []string{"private"}
	for _, line := range h.Values("Cache-Control") {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(part)), "=")
			switch name {
			case "", "public", "private", "s-maxage", "proxy-revalidate":
			default:
				kept = append(kept, strings.TrimSpace(part))
			}
		}
	}
	h.Set("Cache-Control", strings.Join(kept, ", "))
}

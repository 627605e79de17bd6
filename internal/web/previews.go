package web

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/fault"
)

// A preview shows what a program of a session serves. Its address is a host of its own,
// so that browsers keep it apart from all else that is here.

// loopbackDomain is where browsers look for nobody but their own machine.
const loopbackDomain = "localhost"

// readPreviews looks at the domain of the configuration: no name of the server's own may
// be it or lie below it, or a preview would have the server's origin, or be a host that
// the server's is below. The names are those of the configuration and the one to listen at.
func (s *Server) readPreviews() error {
	domain := strings.ToLower(s.config.PreviewDomain)
	if s.config.PreviewDomain = domain; domain == "" {
		return nil
	}
	hint := "transport_http.preview_domain is a domain of which *.domain leads to this server and which has no other use, such as preview.example.net"
	if !isDomain(domain) {
		return fault.New(fault.Invalid, "%q is not a domain for previews", s.config.PreviewDomain).WithHint("%s", hint)
	}
	own := slices.Sorted(maps.Keys(s.hosts))
	if name, _, ok := splitHost(bracketed(s.config.Host)); ok {
		own = append(own, name)
	}
	for _, name := range own {
		if bare := strings.TrimRight(name, "."); bare == domain || strings.HasSuffix(bare, "."+domain) {
			return fault.New(fault.Invalid, "previews cannot be below %q, where the server itself is called %q", domain, name).WithHint("%s; or call the server otherwise, in transport_http.host, public_url and allowed_hosts", hint)
		}
	}
	return nil
}

// isDomain reports whether a text is a domain with room for one more label.
func isDomain(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil || len(s) > 190 || !strings.Contains(s, ".") {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || len(part) > 63 || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
	}
	return true
}

func (s *Server) previewDomain() string {
	if s.config.PreviewDomain != "" {
		return s.config.PreviewDomain
	}
	return loopbackDomain
}

// PreviewURL gives the address of a preview, without a path, as browsers know it; before
// the server listens, as they will if it listens at the port of its Config.
func (s *Server) PreviewURL(id string) string {
	scheme, port := "http", strconv.Itoa(cmp.Or(s.port, s.config.Port))
	if s.cert != nil {
		scheme = "https"
	}
	if u, err := url.Parse(s.config.PublicURL); err == nil && u.Host != "" && s.config.PreviewDomain != "" {
		scheme, port = u.Scheme, orDefault(u.Port(), u.Scheme)
	}
	host := id + "." + s.previewDomain()
	if port != orDefault("", scheme) {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host
}

// routeOf finds what lies where a request was sent to.
func (s *Server) routeOf(r *http.Request, from *sender) route {
	if s.config.Preview != nil {
		name, _, ok := splitHost(from.host)
		id, below := strings.CutSuffix(name, "."+s.previewDomain())
		if ok && below && id != "" && !strings.Contains(id, ".") && s.hosts[name] == nil {
			return route{preview: id, upload: true}
		}
	}
	if r.URL.Path == "/" && !wantsPage(r) {
		return route{}
	}
	return s.route(r.URL.Path)
}

// servePreview passes a request on that was sent to a preview's address.
func (s *Server) servePreview(w *response, r *http.Request, rt route, from *sender) {
	err := s.checkPlain(from)
	if err == nil {
		err = checkSite(r, from)
	}
	if err == nil && r.ContentLength > s.maxBody(rt) {
		err = tooLarge(s.maxBody(rt))
	}
	if err != nil {
		s.fail(w, r, rt, err)
		return
	}
	from.base = from.scheme + "://" + from.host
	for name := range guards {
		w.Header().Del(name) // the program says so, or who answers in its place
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if r.Header.Get("Upgrade") != "" || strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream") {
		// Its browser only listens, and comes again.
		defer context.AfterFunc(s.draining, func() { cancel(errEnding) })()
	}
	s.config.Preview(w, r.WithContext(ctx), rt.preview)
}

// checkSite decides whether the web page may that sent a request to a preview: its own,
// or any that a person leaves for it. Pages of other previews are others, although a
// browser sends the cookies of all that it takes for one site.
func checkSite(r *http.Request, from *sender) error {
	site := r.Header.Get("Sec-Fetch-Site")
	sent := r.Header.Values("Origin")
	if len(sent) == 1 && sent[0] == "null" && site == "same-origin" {
		return nil // a form of its own, of a page that sends no referrers
	}
	if len(sent) > 0 {
		own, _ := normalOrigin(from.scheme + "://" + from.host)
		if origin, ok := normalOrigin(sent[0]); len(sent) > 1 || !ok || origin != own {
			return fault.New(fault.Denied, "pages of the origin %q may not use this preview", printable(strings.Join(sent, ", "))).
				WithHint("serve what belongs together at one port")
		}
		return nil
	}
	switch site {
	case "cross-site", "same-site":
		comes := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		if !comes || r.Method != http.MethodGet && r.Method != http.MethodHead {
			return fault.New(fault.Denied, "another web page may not embed this preview").WithHint("open it in a window of its own")
		}
	}
	return nil
}

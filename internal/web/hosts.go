package web

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/fault"
)

// A web page may have its own name resolve to this machine and then call with
// that name (DNS rebinding). What it cannot do is call by one of our names, or
// send another Origin than its own.

// hosts are the names that this server may be called by, in lower case, each
// with the ports that may follow it; "" stands for any.
type hosts map[string][]string

// allow adds a name.
func (h hosts) allow(name, port string) {
	if !slices.Contains(h[name], port) {
		h[name] = append(h[name], port)
	}
}

func (h hosts) allows(name, port string) bool {
	ports := h[name]
	return slices.Contains(ports, port) || slices.Contains(ports, "")
}

// readHosts takes the names of the configuration. Those of the listener are
// added when its port is known.
func (s *Server) readHosts() error {
	s.hosts = hosts{}
	var mistakes []error
	for _, h := range s.config.AllowedHosts {
		name, port, ok := splitHost(h)
		if !ok {
			mistakes = append(mistakes, fault.New(fault.Invalid, "the allowed host %q is not a host", h).WithHint("give a name or an address, with or without a port, such as paddock.example.com or localhost:8080"))
			continue
		}
		s.hosts.allow(name, port)
	}
	if s.config.PublicURL != "" {
		u, err := url.Parse(s.config.PublicURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return errors.Join(append(mistakes, fault.New(fault.Invalid, "the public URL %q is not of the form https://host[:port]", s.config.PublicURL).WithHint("transport_http.public_url is the address that clients know, such as https://paddock.example.com"))...)
		}
		name, port, ok := splitHost(u.Host)
		if !ok {
			return errors.Join(append(mistakes, fault.New(fault.Invalid, "the public URL %q has no right host", s.config.PublicURL).WithHint("transport_http.public_url is the address that clients know, such as https://paddock.example.com"))...)
		}
		s.config.PublicURL = u.Scheme + "://" + u.Host
		s.hosts.allow(name, orDefault(port, u.Scheme))
	}
	return errors.Join(mistakes...)
}

// listensAt adds the names of the address that was bound.
func (s *Server) listensAt(port int) {
	own := strconv.Itoa(port)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", s.config.Host} {
		if name, _, ok := splitHost(bracketed(name)); ok {
			s.hosts.allow(name, own)
		}
	}
}

// checkHost decides whether a request may call this server what it does.
func (s *Server) checkHost(r *http.Request, from *sender) error {
	name, port, ok := splitHost(from.host)
	if ok {
		port = orDefault(port, from.scheme)
		if s.hosts.allows(name, port) || from.direct && isLocal(r, name, port) {
			return nil
		}
	}
	return fault.New(fault.Denied, "this server is not called %q", printable(from.host)).
		WithHint("call it by its own address, or have its operator add the name to transport_http.allowed_hosts")
}

// isLocal reports whether name and port are the very address that the connection
// came in at. No page has an address for a name but one that was loaded from it.
func isLocal(r *http.Request, name, port string) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	called, err := netip.ParseAddr(name)
	return err == nil && called == at.AddrPort().Addr().Unmap().WithZone("") && port == strconv.Itoa(at.Port)
}

// readOrigins takes the origins of the configuration.
func (s *Server) readOrigins() error {
	var mistakes []error
	for _, o := range s.config.Origins {
		own, ok := normalOrigin(o)
		if !ok && o != "*" {
			mistakes = append(mistakes, fault.New(fault.Invalid, "the origin %q is not of the form scheme://host[:port]", o).WithHint("an origin has no path and no pattern; \"*\" alone stands for every web page"))
			continue
		}
		if o == "*" {
			own = o
		}
		s.origins = append(s.origins, own)
	}
	return errors.Join(mistakes...)
}

// checkOrigin decides whether the web page that sent a request may. What is no
// browser sends no Origin; a browser leaves it out for what a page embeds, and
// says so in Sec-Fetch-Site.
func (s *Server) checkOrigin(r *http.Request, from *sender) error {
	sent := r.Header.Values("Origin")
	if len(sent) == 0 {
		site, following := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet
		if (site == "cross-site" || site == "same-site") && !following {
			return fault.New(fault.Denied, "another web page may not embed this")
		}
		return nil
	}
	origin, ok := normalOrigin(sent[0])
	if len(sent) == 1 && ok {
		if origin == ownOrigin(from) || slices.Contains(s.origins, origin) || slices.Contains(s.origins, "*") && strings.HasPrefix(origin, "http") {
			return nil
		}
	}
	return fault.New(fault.Denied, "pages of the origin %q may not call this server", printable(strings.Join(sent, ", "))).
		WithHint("its operator can add the origin to transport_http.cors_origins")
}

// normalOrigin gives scheme://host:port in lower case, the port always there
// for http and https. "null" is not an origin: it names nobody.
func normalOrigin(s string) (string, bool) {
	scheme, rest, ok := strings.Cut(strings.ToLower(s), "://")
	if !ok || scheme == "" || scheme == "file" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return "", false
	}
	name, port, ok := splitHost(rest)
	if !ok {
		return "", false
	}
	return scheme + "://" + net.JoinHostPort(name, orDefault(port, scheme)), true
}

// splitHost takes host[:port] apart. A name comes back in lower case, an IP
// address without brackets and as it is written shortest.
func splitHost(s string) (name, port string, ok bool) {
	name = s
	if end := strings.LastIndexByte(s, ']'); strings.HasPrefix(s, "[") {
		if end < 0 {
			return "", "", false
		}
		name, port = s[1:end], s[end+1:]
		if a, err := netip.ParseAddr(name); err != nil || !a.Is6() || a.Zone() != "" {
			return "", "", false
		}
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 {
		name, port = s[:colon], s[colon:]
	}
	if port != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(port, ":"), 10, 16)
		if port[0] != ':' || err != nil || n == 0 {
			return "", "", false
		}
		port = strconv.FormatUint(n, 10)
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().String(), port, true
	}
	name = strings.ToLower(name)
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
		return "", "", false
	}
	return name, port, true
}

// bracketed writes an address as it stands in a URL.
func bracketed(name string) string {
	if strings.Contains(name, ":") && !strings.HasPrefix(name, "[") {
		return "[" + name + "]"
	}
	return name
}

// orDefault gives the port that a scheme stands for where none is written.
func orDefault(port, scheme string) string {
	switch {
	case port != "":
		return port
	case scheme == "https":
		return "443"
	case scheme == "http":
		return "80"
	}
	return ""
}

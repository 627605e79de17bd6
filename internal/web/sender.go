package web

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"paddock/internal/fault"
)

// sender is where a request comes from and which address it was sent to, as
// the client knows them. It is made once, at the top.
type sender struct {
	id     string     // the request's
	client netip.Addr // the zero Addr: not known
	direct bool       // it came through no trusted proxy
	scheme string     // http or https
	host   string     // host[:port] as the client wrote it; not checked yet
	base   string     // scheme://host as clients should write it, once host is checked
	who    string     // the principal's name, for the log; empty: not known yet
	token  string     // what they came in with; empty: none was asked for
}

// senderOf finds out where a request comes from.
func (s *Server) senderOf(r *http.Request) *sender {
	from := &sender{scheme: "http", host: r.Host, direct: true}
	if r.TLS != nil {
		from.scheme = "https"
	}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from.client = at.Addr().Unmap()
	}
	if !s.trusts(from.client) {
		from.id = newID()
		return from
	}
	from.direct = false
	hops, scheme, host := forwarded(r.Header)
	for _, hop := range slices.Backward(hops) {
		a, ok := hopAddr(hop)
		if !ok {
			break // from there on somebody wrote what they liked
		}
		from.client = a
		if !s.trusts(a) {
			break
		}
	}
	if scheme == "http" || scheme == "https" {
		from.scheme = scheme
	}
	if host != "" {
		from.host = host
	}
	if from.id = r.Header.Get("X-Request-Id"); !saneID(from.id) {
		from.id = newID()
	}
	return from
}

func (s *Server) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// forwarded reads what proxies say about a request: the addresses that it
// passed, the nearest last, and the scheme and the host that it began with, as
// the nearest proxy knows them. X-Forwarded-* goes before Forwarded, which
// fewer proxies write and many let through.
func forwarded(h http.Header) (hops []string, scheme, host string) {
	hops = list(h, "X-Forwarded-For")
	scheme, host = last(list(h, "X-Forwarded-Proto")), last(list(h, "X-Forwarded-Host"))
	if len(hops) > 0 || scheme != "" || host != "" {
		return hops, strings.ToLower(scheme), host
	}
	for _, element := range list(h, "Forwarded") {
		hop := ""
		scheme, host = "", ""
		for pair := range strings.SplitSeq(element, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			value = strings.Trim(value, `"`)
			switch strings.ToLower(name) {
			case "for":
				hop = value
			case "proto":
				scheme = strings.ToLower(value)
			case "host":
				host = value
			}
		}
		hops = append(hops, hop)
	}
	return hops, scheme, host
}

// list gives the comma-separated parts of all headers of a name.
func list(h http.Header, name string) []string {
	var parts []string
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			parts = append(parts, strings.TrimSpace(part))
		}
	}
	return parts
}

func last(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return parts[len(parts)-1]
}

// hopAddr reads an address, or an address with a port, such as "[2001:db8::1]:80".
func hopAddr(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a.Unmap(), err == nil
}

// readProxies takes the proxies of the configuration.
func (s *Server) readProxies() error {
	var mistakes []error
	for _, text := range s.config.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, single := netip.ParseAddr(text); single == nil {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil {
			mistakes = append(mistakes, fault.New(fault.Invalid, "the trusted proxy %q is neither an address nor a prefix", text).WithHint("10.0.0.7 and 10.0.0.0/8 are"))
			continue
		}
		s.proxies = append(s.proxies, p.Masked())
	}
	return errors.Join(mistakes...)
}

package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"paddock/internal/fault"
)

// What Options leave open. A name that leads to more than maxAddrs addresses is
// refused: each is looked at before any is dialled.
const (
	defaultConnect   = 10 * time.Second
	defaultHeader    = 60 * time.Second
	defaultHeadBytes = 256 << 10
	defaultRedirects = 5
	maxAddrs         = 64
)

// Resolver finds the addresses of a name; [net.Resolver] is one. Network is "ip".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are how a transport works. Zeros mean what the comments say.
type Options struct {
	// Resolver finds addresses; nil: the system's.
	Resolver Resolver
	// Connect bounds finding, dialling and greeting a host, each; zero: 10 s.
	Connect time.Duration
	// Header bounds the time from a request to its answer's header; zero: 60 s,
	// negative: none. What comes after that is bounded by the request's context.
	Header time.Duration
	// HeaderBytes bounds an answer's header; zero: 256 KiB.
	HeaderBytes int64
	// Redirects is how many may follow one another; zero: 5, negative: none.
	Redirects int
	// Verbatim leaves bodies compressed as they come, and asks for no compression.
	Verbatim bool
	// TLS is the client's configuration; nil: the system's certificates, TLS 1.2
	// or later. It is copied.
	TLS *tls.Config
	// Dialled, where there is one, is told of each connection that was opened. It
	// is called from many goroutines, and must not block.
	Dialled func(host string, to netip.AddrPort)
}

// Transport is the [http.RoundTripper] of a policy; NewTransport makes it. It is
// for any number of goroutines.
type Transport struct {
	policy    Policy
	resolver  Resolver
	dialer    net.Dialer
	dialled   func(string, netip.AddrPort)
	redirects int
	config    *tls.Config
	early     ahead
	inner     *http.Transport
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport makes a transport for an [http.Client] that reaches what a policy
// allows and nothing else:
//
//   - http and https only; no proxy, whatever the environment says; no user in
//     the URL, no CONNECT and TRACE, no Upgrade, and no Host but the URL's.
//   - Each name is resolved here. If any of its addresses may not be dialled
//     none is, and what is dialled is one of those that were looked at.
//   - A request that a redirect leads to is checked as any other. Where it leads
//     to another origin (scheme, host, port) than any before it, only headers that
//     say what is wanted, and not by whom, go along; a body does not: that is a
//     fault.Denied, and so is a redirect from https to http.
//
// Errors are faults where the policy refused or nothing could be reached. The
// body of an answer is not bounded: whoever reads it does that.
func NewTransport(p Policy, o Options) *Transport {
	t := &Transport{policy: p, resolver: o.Resolver, dialled: o.Dialled, redirects: o.Redirects}
	if t.resolver == nil {
		t.resolver = net.DefaultResolver
	}
	if t.redirects == 0 {
		t.redirects = defaultRedirects
	}
	connect := cmp.Or(o.Connect, defaultConnect)
	t.dialer = net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		config = o.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	t.config = config
	t.inner = &http.Transport{
		DialContext:            t.orEarly("http", t.dial),
		DialTLSContext:         t.orEarly("https", t.dialTLS),
		TLSClientConfig:        config.Clone(),
		ResponseHeaderTimeout:  max(cmp.Or(o.Header, defaultHeader), 0),
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: cmp.Or(o.HeaderBytes, defaultHeadBytes),
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    8,
		ForceAttemptHTTP2:      true,
		DisableCompression:     o.Verbatim,
	}
	return t
}

// CloseIdleConnections closes what no request uses, nor has taken yet.
func (t *Transport) CloseIdleConnections() {
	t.early.close()
	t.inner.CloseIdleConnections()
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	out, err := t.checked(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	resp, err := t.inner.RoundTrip(out)
	if err != nil {
		return nil, explain(r.Context(), out.URL.Hostname(), err)
	}
	resp.Request = r
	return resp, nil
}

// checked gives the request that may go out, a copy.
func (t *Transport) checked(r *http.Request) (*http.Request, error) {
	if r.URL == nil {
		return nil, fault.New(fault.Invalid, "the request has no URL")
	}
	at, err := originOf(r.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case r.URL.Opaque != "":
		return nil, fault.New(fault.Invalid, "the URL of %s has no path", at.host)
	case r.URL.User != nil:
		return nil, fault.New(fault.Denied, "the URL of %s holds a user", at.host).WithHint("give credentials apart from the URL")
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return nil, fault.New(fault.Denied, "the method %s is not let out", r.Method)
	case r.Header.Get("Upgrade") != "" || httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade"):
		return nil, fault.New(fault.Denied, "a request to %s wants another protocol than HTTP", at.host)
	}
	if err := checkHostHeader(r, at); err != nil {
		return nil, err
	}
	grant, err := t.policy.CheckRequest(Request{Method: cmp.Or(r.Method, http.MethodGet), Host: at.host, Port: at.port, Path: r.URL.EscapedPath()})
	if err != nil {
		return nil, err
	}
	if err := checkOverrides(r, at, grant); err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	if out.URL.Path, err = url.PathUnescape(grant.Path); err != nil {
		return nil, fault.New(fault.Invalid, "the path cannot be read")
	}
	out.URL.RawPath = grant.Path
	out.URL.Host, out.Host = at.authority(), ""
	return out, t.follow(r, out, at)
}

// checkHostHeader refuses a request to one host that asks for another.
func checkHostHeader(r *http.Request, at origin) error {
	if r.Host == "" {
		return nil
	}
	if named, err := originOf(&url.URL{Scheme: r.URL.Scheme, Host: r.Host}); err != nil || named != at {
		return fault.New(fault.Denied, "a request to %s asks for the host %.100q", at.host, r.Host)
	}
	return nil
}

// overrides are headers by which some servers read another method or another path than
// the request has.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Prefix"}

// checkOverrides refuses a request that says in two ways what it is, where not every
// request is allowed.
func checkOverrides(r *http.Request, at origin, grant Grant) error {
	if !grant.Part {
		return nil
	}
	for name := range r.Header {
		// Where headers become variables, an underscore and a hyphen are one.
		if slices.Contains(overrides, http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return fault.New(fault.Denied, "not every request to %s is allowed, and the header %.50q asks for another one", at.host, name)
		}
	}
	return nil
}

// wants are the headers that go along to another origin.
var wants = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Pragma", "Range", "User-Agent",
}

// follow looks at the redirects that led to a request.
func (t *Transport) follow(r, out *http.Request, at origin) error {
	n, same := 0, true
	for via := r.Response; via != nil && via.Request != nil; via = via.Request.Response {
		if n++; n > max(t.redirects, 0) {
			return fault.New(fault.Denied, "%s redirects, and then on and on", at.host).WithHint("ask for the last address itself")
		}
		from, err := originOf(via.Request.URL)
		if err != nil {
			return err
		}
		if from.scheme == "https" && at.scheme == "http" {
			return fault.New(fault.Denied, "%s redirects from https to http", from.host)
		}
		same = same && from == at
	}
	if same {
		return nil
	}
	if r.Body != nil && r.Body != http.NoBody {
		return fault.New(fault.Denied, "a redirect would carry the request's body on to %s", at.host).WithHint("send it there itself, if it is meant for it")
	}
	for name := range out.Header {
		if !slices.Contains(wants, name) {
			out.Header.Del(name)
		}
	}
	return nil
}

// origin is what credentials belong to.
type origin struct {
	scheme, host string
	port         int
}

// authority is the origin's part of a URL.
func (o origin) authority() string {
	if o.port == 80 && o.scheme == "http" || o.port == 443 && o.scheme == "https" {
		if strings.Contains(o.host, ":") {
			return "[" + o.host + "]"
		}
		return o.host
	}
	return show(o.host, o.port)
}

// originOf reads a URL's.
func originOf(u *url.URL) (origin, error) {
	o := origin{scheme: strings.ToLower(u.Scheme)}
	switch o.scheme {
	case "http":
		o.port = 80
	case "https":
		o.port = 443
	default:
		return o, fault.New(fault.Denied, "%.30q is not let out: only http and https are", u.Scheme)
	}
	name, port, err := splitAuthority(u.Host)
	if err != nil {
		return o, err
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return o, fault.New(fault.Invalid, "%.20q is not a port", port)
		}
		o.port = int(n)
	}
	o.host, err = Host(name)
	return o, err
}

// Origin reads where a URL leads: its scheme, "http" or "https", its canonical host and
// its port. It is a fault.Denied for other schemes and a fault.Invalid for what is not a host.
func Origin(u *url.URL) (scheme, host string, port int, err error) {
	o, err := originOf(u)
	return o.scheme, o.host, o.port, err
}

// Authority is how a URL of a scheme writes a canonical host and a port.
func Authority(scheme, host string, port int) string {
	return origin{scheme, host, port}.authority()
}

// splitAuthority takes a URL's host and port apart. [url.URL.Hostname] would take
// the brackets of an address off, so that what is in them could be anything.
func splitAuthority(text string) (host, port string, err error) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 || strings.HasSuffix(text, "]") {
		return text, "", nil
	}
	if host = text[:at]; strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "", "", errHost(text, "an IPv6 address in a URL needs brackets")
	}
	return host, text[at+1:], nil
}

// dial opens a connection to a host that Check allowed: to an address that was
// looked at, and only if all of its addresses may be dialled.
func (t *Transport) dial(ctx context.Context, network, to string) (net.Conn, error) {
	host, digits, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return nil, err
	}
	if err := t.policy.Reach(host, int(port)); err != nil {
		return nil, err
	}
	addrs, err := t.addresses(ctx, host, int(port))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range addrs {
		target := netip.AddrPortFrom(addr, uint16(port))
		conn, err := t.dialer.DialContext(ctx, network, target.String())
		if err == nil {
			if t.dialled != nil {
				t.dialled(host, target)
			}
			return conn, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// addresses finds those of a host, all of which may be dialled.
func (t *Transport) addresses(ctx context.Context, host string, port int) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, t.policy.CheckAddr(host, addr, port)
	}
	ctx, cancel := context.WithTimeout(ctx, t.dialer.Timeout)
	defer cancel()
	addrs, err := t.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 || len(addrs) > maxAddrs {
		return nil, fault.New(fault.Unavailable, "%s has %d addresses", host, len(addrs))
	}
	for k, addr := range addrs {
		if err := t.policy.CheckAddr(host, addr, port); err != nil {
			return nil, err
		}
		addrs[k] = addr.Unmap()
	}
	return addrs, nil
}

// explain makes a fault of what kept a request from being answered.
func explain(ctx context.Context, host string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return fault.New(fault.Unavailable, "%s is not known to DNS", host).WithHint("check how it is written").WithCause(err)
	}
	return fault.New(fault.Unavailable, "%s did not answer as an HTTP server", host).WithHint("check that it runs, and that this host reaches it").WithCause(err)
}

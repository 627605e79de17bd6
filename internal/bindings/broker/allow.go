package broker

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// Allowlist says which servers sessions may bind for themselves. The zero Allowlist
// allows none. It does not change, and is for any number of goroutines.
type Allowlist struct {
	names map[string]bool
	hosts egress.Policy
}

// ParseAllowlist reads an operator's entries. One is either a rule for hosts of package
// egress (mcp.example.com, .example.com, mcp.example.com:8443, 10.1.2.3:3401!private),
// or the name of a server (deepwiki): what is bound by that name may be at any host of
// the public Internet. A word that could be either is both, but for localhost, which is
// a host. Who names this machine (localhost, 127.0.0.1), or an address or a name without
// dots with its port (10.1.2.3:3401, intranet:8080), means what is not public; localhost
// without a port is so at every port. All mistakes are told at once.
func ParseAllowlist(entries []string) (Allowlist, error) {
	a := Allowlist{names: map[string]bool{}}
	var hosts []string
	for _, entry := range entries {
		name := !strings.ContainsAny(entry, ".:!*") && !strings.EqualFold(entry, "localhost") && checkName(entry) == nil
		if name {
			a.names[entry] = true
		}
		if _, err := egress.Host(entry); !name || err == nil {
			hosts = append(hosts, meant(entry))
		}
	}
	var err error
	a.hosts, err = egress.Parse(hosts, egress.Rights{All: true, Private: true})
	return a, err
}

// meant is the rule that an entry stands for.
func meant(entry string) string {
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = strings.Trim(entry, "[]"), ""
	}
	name, err := egress.Host(host)
	addr, errAddr := netip.ParseAddr(name)
	switch {
	case err != nil || strings.HasSuffix(entry, "!private"):
	case name == "localhost" || strings.HasSuffix(name, ".localhost") || errAddr == nil && addr.IsLoopback():
		if port == "" {
			port = "*"
		}
		return net.JoinHostPort(name, port) + "!private"
	case port != "" && port != "*" && (errAddr == nil || !strings.Contains(name, ".")):
		return entry + "!private"
	}
	return entry
}

// Check says why a server may not be bound by a session under that name: fault.Invalid
// where its URL names no host, else fault.Denied; nil: it may. To what its host's name
// leads is looked at when it is connected to.
func (a Allowlist) Check(name, rawURL string) error {
	t, err := targetOf(rawURL)
	if err != nil {
		return err
	}
	if a.hosts.Check(t.host, t.port) == nil {
		return nil
	}
	addr, err := netip.ParseAddr(t.host)
	if public := err != nil || egress.Public(addr); public && a.names[name] {
		return nil
	} else if !public {
		return fault.New(fault.Denied, "the server %q may not be bound: %s is not on the public Internet", name, t.host).
			WithHint("the operator can allow it, if that is wise: %s!private in PADDOCK_MCP_ALLOWLIST (mcp.allowlist)", t.rule())
	}
	return fault.New(fault.Denied, "the server %q may not be bound: %s is not among the hosts that sessions may bind", name, t.rule()).
		WithHint("the operator can allow it: PADDOCK_MCP_ALLOWLIST=%s (mcp.allowlist)", t.rule())
}

// target is where a URL leads.
type target struct {
	host string // canonical
	port int
}

func targetOf(rawURL string) (t target, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return t, fault.New(fault.Invalid, "the URL cannot be read") // url.Error repeats it, and it may hold a password
	}
	switch u.Scheme {
	case "http":
		t.port = 80
	case "https":
		t.port = 443
	default:
		return t, fault.New(fault.Invalid, "the URL is not one of http or https")
	}
	host := u.Host
	if port := u.Port(); port != "" {
		if t.port, err = strconv.Atoi(port); err != nil {
			return t, fault.New(fault.Invalid, "%.20q is not a port", port)
		}
		host = strings.TrimSuffix(host, ":"+port)
	}
	t.host, err = egress.Host(host)
	return t, err
}

// rule is the entry that would allow the target.
func (t target) rule() string {
	if t.port != 80 && t.port != 443 {
		return net.JoinHostPort(t.host, strconv.Itoa(t.port))
	}
	return t.host
}

// transports are the transports to servers that sessions bound: one to what the list's
// hosts are, and one to the public Internet, for what its names allow.
type transports struct {
	list          Allowlist
	hosts, public *egress.Transport
}

func openOutlets(list Allowlist) (*transports, error) {
	all, err := egress.Parse([]string{"*:*"}, egress.Rights{All: true})
	if err != nil {
		return nil, fmt.Errorf("making the policy of servers that are allowed by name: %w", err)
	}
	o := egress.Options{Header: -1} // calls are bounded
	return &transports{list, egress.NewTransport(list.hosts, o), egress.NewTransport(all, o)}, nil
}

// to gives what reaches a server, if the list allows it. It reaches others as well: a
// connection of package upstream keeps to its origin.
func (o *transports) to(name, rawURL string) (http.RoundTripper, error) {
	if err := o.list.Check(name, rawURL); err != nil {
		return nil, err
	}
	t, err := targetOf(rawURL)
	if err != nil {
		return nil, err
	}
	if o.list.hosts.Check(t.host, t.port) == nil {
		return o.hosts, nil
	}
	return o.public, nil
}

func (o *transports) close() {
	o.hosts.CloseIdleConnections()
	o.public.CloseIdleConnections()
}

// Package egress says which hosts may be reached, and reaches no others: a
// [Policy] is a list of rules, and [NewTransport] makes the HTTP client's
// transport that keeps to it, by names, by addresses, and at each redirect.
//
// A rule is one of
//
//	api.example.com          the host, at the ports 80 and 443
//	api.example.com:8443     the host at one port
//	api.example.com:*        the host at any port
//	.example.com             every host below it, not the host itself; ports as above
//	192.0.2.1  [2001:db8::1] an address; ports as above
//	*                        every host; only for who has Rights.All
//	10.1.2.3:3401!private    the host or the address, also where it is not on the
//	                         public Internet; only for who has Rights.Private
//
// A name that a rule allows with !private may lead to any private address, but
// to those where clouds keep credentials: such an address has to be in a rule
// itself.
package egress

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"paddock/internal/fault"
)

const (
	// maxRules and maxRule bound a list of rules, and a rule in bytes.
	maxRules, maxRule = 1000, 300
	// private ends a rule whose host need not be public.
	private = "!private"
	// anyPort is the port of a rule that allows all of them; 0 stands for the
	// usual ones.
	anyPort = -1
)

// Rights are what whoever writes rules may allow. The zero Rights are those of a
// model: named hosts of the public Internet.
type Rights struct {
	// All permits the rule "*", and ".com" and its like.
	All bool
	// Private permits "!private".
	Private bool
}

// Policy says what may be reached. The zero Policy allows nothing. It does not
// change, and is for any number of goroutines.
type Policy struct {
	rules []rule
	// within are further lists that have to allow a host as well; no permission
	// to leave the public Internet comes from them.
	within [][]rule
}

// rule is one line of a policy.
type rule struct {
	host    string     // canonical; with a leading dot: what is below it; "*": all
	addr    netip.Addr // of a host that is an address
	port    int        // anyPort, 0 for 80 and 443, or the port
	private bool
}

// Parse makes a policy of rules, as the package's comment has them. All mistakes
// are reported at once: fault.Invalid for what is no rule, fault.Denied for what
// the rights do not cover.
func Parse(rules []string, rights Rights) (Policy, error) {
	if len(rules) > maxRules {
		return Policy{}, fault.New(fault.Invalid, "there are more than %d rules for hosts", maxRules).WithHint("name fewer hosts, or what is above them as .example.com")
	}
	var p Policy
	var mistakes []error
	for _, text := range rules {
		r, err := parseRule(text, rights)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		p.rules = append(p.rules, r)
	}
	if err := errors.Join(mistakes...); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// Narrow gives what p allows of what other rules allow; of addresses that are not
// public it is p alone that permits them. Other is typically a model's wish.
func (p Policy) Narrow(other Policy) Policy {
	within := append([][]rule{}, p.within...)
	within = append(within, other.rules)
	return Policy{rules: p.rules, within: append(within, other.within...)}
}

// Empty tells whether nothing at all is allowed.
func (p Policy) Empty() bool {
	for _, w := range p.within {
		if len(w) == 0 {
			return true
		}
	}
	return len(p.rules) == 0
}

func parseRule(text string, rights Rights) (rule, error) {
	if len(text) > maxRule {
		return rule{}, errRule(text, "it is too long")
	}
	target, isPrivate := strings.CutSuffix(text, private)
	r := rule{private: isPrivate}
	if isPrivate && !rights.Private {
		return rule{}, fault.New(fault.Denied, "the rule %.100q reaches what is not public", text).WithHint("only who runs the server may write %s, in its configuration", private)
	}
	host, port, err := splitRule(target)
	if err != nil {
		return rule{}, errRule(text, err.Error())
	}
	r.port = port
	switch {
	case host == "*":
		r.host = host
		if !rights.All {
			return rule{}, errWide(text)
		}
	case strings.HasPrefix(host, "."):
		below, err := Host(host[1:])
		if err != nil {
			return rule{}, err
		}
		if _, err := netip.ParseAddr(below); err == nil {
			return rule{}, errRule(text, "nothing is below an address")
		}
		if suffix, listed := publicsuffix.PublicSuffix(below); listed && suffix == below && !rights.All {
			return rule{}, errWide(text)
		}
		r.host = "." + below
	default:
		if r.host, err = Host(host); err != nil {
			return rule{}, err
		}
		if addr, err := netip.ParseAddr(r.host); err == nil {
			r.addr = addr
		}
		return r, nil
	}
	if r.private {
		return rule{}, errRule(text, "what is not public has to be named, host by host")
	}
	return r, nil
}

func errWide(text string) error {
	return fault.New(fault.Denied, "the rule %.100q allows hosts that nobody has looked at", text).
		WithHint("name the hosts; only who runs the server may allow all of them")
}

func errRule(text, why string) error {
	return fault.New(fault.Invalid, "%.100q is no rule for hosts: %s", text, why).
		WithHint("write api.example.com, api.example.com:8443 or .example.com, without a scheme or a path")
}

// splitRule takes a rule's port off. An IPv6 address without brackets has none.
func splitRule(target string) (host string, port int, err error) {
	if strings.Contains(target, "/") {
		return "", 0, errors.New("a rule has no scheme and no path")
	}
	if addr, err := netip.ParseAddr(target); err == nil && addr.Is6() {
		return target, 0, nil
	}
	at := strings.LastIndexByte(target, ':')
	if at < 0 || strings.HasSuffix(target, "]") {
		return target, 0, nil
	}
	host, digits := target[:at], target[at+1:]
	if digits == "*" {
		return host, anyPort, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' || digits[0] == '+' {
		return "", 0, errors.New("its port is no number from 1 to 65535")
	}
	return host, int(n), nil
}

// matches tells whether a rule is about a canonical host and a port.
func (r rule) matches(host string, port int) bool {
	switch {
	case r.port == 0 && port != 80 && port != 443, r.port > 0 && r.port != port:
		return false
	case r.host == "*":
		return true
	case r.host[0] == '.':
		_, err := netip.ParseAddr(host)
		return err != nil && len(host) > len(r.host) && strings.HasSuffix(host, r.host)
	}
	return r.host == host
}

func match(rules []rule, host string, port int) bool {
	for _, r := range rules {
		if r.matches(host, port) {
			return true
		}
	}
	return false
}

// Allows tells whether a host, in any way of writing it, may be asked for at a
// port. What its name leads to is another question: [Policy.CheckAddr].
func (p Policy) Allows(host string, port int) bool { return p.Check(host, port) == nil }

// Check says why a host may not be asked for: fault.Invalid where it is none,
// fault.Denied where no rule allows it, or where it is an address that is not
// public; nil: it may.
func (p Policy) Check(host string, port int) error {
	name, err := Host(host)
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return fault.New(fault.Invalid, "there is no port %d", port)
	}
	allowed := match(p.rules, name, port)
	for _, rules := range p.within {
		allowed = allowed && match(rules, name, port)
	}
	if !allowed {
		return fault.New(fault.Denied, "%s is not among the hosts that may be reached", show(name, port)).
			WithHint("who runs the server can allow it, as %s", show(name, port))
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return p.CheckAddr(name, addr, port)
	}
	return nil
}

// CheckAddr says why an address that an allowed host's name leads to may not be
// dialled: nil where it is public, or where a rule names the host or the address
// with !private. It is to be asked of every address, and the very address is to
// be dialled.
func (p Policy) CheckAddr(host string, addr netip.Addr, port int) error {
	name, err := Host(host)
	if err != nil {
		return err
	}
	if !addr.IsValid() || addr.Zone() != "" {
		return fault.New(fault.Denied, "%s leads to an address of one of this host's networks", name)
	}
	b := blockOf(plain(addr))
	if b.public {
		return nil
	}
	for _, r := range p.rules {
		if !r.private || !r.matches(name, port) {
			continue
		}
		if !b.exact || r.addr.IsValid() && plain(r.addr) == plain(addr) {
			return nil
		}
	}
	return fault.New(fault.Denied, "%s leads to %s, %s", name, plain(addr), b.is).
		WithHint("only who runs the server can allow that, as %s%s", show(name, port), private)
}

// show is a host and a port as a rule has them.
func show(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

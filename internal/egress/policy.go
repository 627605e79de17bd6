// Package egress says which hosts may be reached, and reaches no others: a
// [Policy] is a list of rules, and [NewTransport] makes the HTTP client's
// transport that keeps to it, by names, by addresses, and at each redirect.
//
// A rule is one of
//
//	api.example.com          the host, at the ports 80 and 443
//	api.example.com:8443     the host at one port
//	api.example.com:*        the host at any port
//	*.example.com            every host below it, not the host itself; ports as above
//	.example.com             the same
//	192.0.2.1  [2001:db8::1] an address; ports as above
//	*                        every host; only for who has Rights.All
//	10.1.2.3:3401!private    the host or the address, also where it is not on the
//	                         public Internet; only for who has Rights.Private
//
// and, for who has Rights.Requests, may say which requests it is about, by their method,
// their path, or both:
//
//	GET api.example.com            one method, in capitals; GET allows HEAD
//	api.example.com:8443/v1/users  one path, whatever its query
//	api.example.com/v1/*           what begins with /v1/
//	GET api.example.com/a/*/b      a star between slashes is one part of a path
//
// Paths are compared in one spelling, by their letters' case, and where a rule's path
// decides, a path that servers read in different ways is refused. A rule that has neither allows every request: put both for one host and the former says
// nothing. There are no rules that forbid.
//
// A name that a rule allows with !private may lead to any private address, but
// to those where clouds keep credentials: such an address has to be in a rule
// itself.
package egress

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/fault"
)

// Rights are what whoever writes rules may allow. The zero Rights are those of a
// model: named hosts of the public Internet.
type Rights struct {
	// All permits the rule "*", and ".com" and its like.
	All bool
	// Private permits "!private".
	Private bool
	// Requests permits rules with a method or a path. It is for lists by which requests
	// are decided about ([Policy.CheckRequest]), and not hosts alone.
	Requests bool
}

// Policy says what may be reached. The zero Policy allows nothing. It does not
// change, and is for any number of goroutines.
type Policy struct {
	rules []rule
	// within are further lists that have to allow a host as well; no permission
	// to leave the public Internet comes from them.
	within [][]rule
}

// Parse makes a policy of rules, as the package's comment has them. All mistakes
// are reported at once: fault.Invalid for what is not a rule, fault.Denied for what
// the rights do not cover.
func Parse(rules []string, rights Rights) (Policy, error) {
	if len(rules) > maxRules {
		return Policy{}, fault.New(fault.Invalid, "there are more than %d rules for hosts", maxRules).WithHint("use fewer rules, or a wildcard such as *.example.com")
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

// match finds the first rule of a list about a host and a port that another condition
// holds for; nil: none.
func match(rules []rule, host string, port int, also func(rule) bool) *rule {
	for k := range rules {
		if rules[k].matches(host, port) && also(rules[k]) {
			return &rules[k]
		}
	}
	return nil
}

// everywhere tells whether each list of a policy has a rule about a host and a port that
// another condition holds for.
func (p Policy) everywhere(host string, port int, also func(rule) bool) bool {
	for _, rules := range p.within {
		if match(rules, host, port, also) == nil {
			return false
		}
	}
	return match(p.rules, host, port, also) != nil
}

// Allows tells whether a host, in any way of writing it, may be asked for at a
// port, with whatever request. What its name leads to is another question:
// [Policy.CheckAddr].
func (p Policy) Allows(host string, port int) bool { return p.Check(host, port) == nil }

// Check says why a host may not be asked for at a port, with whatever request:
// fault.Invalid where it is none, fault.Denied where no rule allows it, or where it is an
// address that is not public; nil: it may. Rules that have a method or a path do not
// count: they are [Policy.CheckRequest]'s.
func (p Policy) Check(host string, port int) error { return p.check(host, port, rule.whole) }

func (p Policy) Reach(host string, port int) error {
	return p.check(host, port, func(rule) bool { return true })
}

func (p Policy) check(host string, port int, also func(rule) bool) error {
	name, err := canonical(host, port)
	if err != nil {
		return err
	}
	if !p.everywhere(name, port, also) {
		return errUnlisted(name, port)
	}
	return p.checkLiteral(name, port)
}

// Names tells whether some request may go to a host at some port.
func (p Policy) Names(host string) bool {
	name, err := Host(host)
	if err != nil {
		return false
	}
	for _, rules := range append([][]rule{p.rules}, p.within...) {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.names(name) }) {
			return false
		}
	}
	return true
}

// Request is what one decision is about.
type Request struct {
	Method string // as it is sent: methods differ by case
	Host   string // in any way of writing it
	Port   int
	Path   string // as it stands in the URL: escaped, without the query; "" is "/"
}

// Grant says how a request is allowed.
type Grant struct {
	// Rule is the rule that allows it, as it was written.
	Rule string
	// Path is what is to be sent: the path's one spelling where a rule's path decided,
	// else the path as it came.
	Path string
	// Part tells that not every request to the host is allowed, so that nothing else in
	// the request may say what it is for.
	Part bool
}

// CheckRequest decides about one request. Its errors are Check's; a path that one server
// may read as another than the next (/v1/../admin, /v1%2fadmin, /v1//x) is a fault.Denied
// where only some paths of the host are allowed.
func (p Policy) CheckRequest(r Request) (Grant, error) {
	name, err := canonical(r.Host, r.Port)
	if err != nil {
		return Grant{}, err
	}
	path, errPath := canonicalPath(r.Path)
	anyPath := func(k rule) bool { return k.path == nil && k.takes(r.Method) }
	thisPath := func(k rule) bool {
		return k.takes(r.Method) && (k.path == nil || errPath == nil && matchPath(k.path, path))
	}
	if !p.everywhere(name, r.Port, thisPath) {
		return Grant{}, p.whyNot(name, path, errPath, r)
	}
	if err := p.checkLiteral(name, r.Port); err != nil {
		return Grant{}, err
	}
	grant := Grant{Path: path, Part: !p.everywhere(name, r.Port, rule.whole)}
	if p.everywhere(name, r.Port, anyPath) {
		grant.Path = cmp.Or(r.Path, "/")
	}
	for _, also := range []func(rule) bool{rule.whole, anyPath, thisPath} { // what says most names it
		if k := match(p.rules, name, r.Port, also); k != nil {
			grant.Rule = k.text
			break
		}
	}
	return grant, nil
}

// whyNot says why a request is not allowed.
func (p Policy) whyNot(name, path string, errPath error, r Request) error {
	switch {
	case !p.everywhere(name, r.Port, func(rule) bool { return true }):
		return errUnlisted(name, r.Port)
	case errPath != nil && p.everywhere(name, r.Port, func(k rule) bool { return k.takes(r.Method) }):
		return errAmbiguous(name, errPath)
	case errPath != nil:
		path = "/"
	}
	return fault.New(fault.Denied, "the request %.20s %.200s is not among those that %s may be asked", r.Method, path, show(name, r.Port)).
		WithHint("the operator can allow it, as %.20s %s%.200s", r.Method, show(name, r.Port), path)
}

func errUnlisted(name string, port int) error {
	rule := show(name, port)
	if addr, err := netip.ParseAddr(name); err == nil && !Public(addr) || err != nil && local(name) {
		rule += private
	}
	return fault.New(fault.Denied, "%s is not among the hosts that may be reached", show(name, port)).
		WithHint("the operator can allow it, as %s", rule)
}

// local tells whether a name is one of this machine, or of its network alone.
func local(name string) bool {
	return !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost")
}

// ErrSpelling is in the errors of [Policy.CheckRequest], for errors.Is: the request is to
// be written otherwise, and no rule would let it through.
var ErrSpelling = errors.New("a path that is not read alike by all servers")

func errAmbiguous(name string, why error) error {
	return fault.New(fault.Denied, "not every path of %s may be asked for, and this one is not read alike by all servers: %v", name, why).
		WithHint("write the path plainly: without dots, doubled or escaped slashes").WithCause(ErrSpelling)
}

// canonical is the one spelling of a host that may be asked for at a port.
func canonical(host string, port int) (string, error) {
	name, err := Host(host)
	if err == nil && (port < 1 || port > 65535) {
		err = fault.New(fault.Invalid, "there is no port %d", port)
	}
	return name, err
}

// checkLiteral is CheckAddr for a host that is an address.
func (p Policy) checkLiteral(name string, port int) error {
	if addr, err := netip.ParseAddr(name); err == nil {
		return p.CheckAddr(name, addr, port)
	}
	return nil
}

// ErrAddress is in the errors of [Policy.CheckAddr], for errors.Is.
var ErrAddress = errors.New("an address that may not be dialled")

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
		return fault.New(fault.Denied, "%s leads to an address of one of this host's networks", name).WithCause(ErrAddress)
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
	what := name + " leads to " + plain(addr).String() + ", "
	if name == plain(addr).String() {
		what = name + " is "
	}
	return fault.New(fault.Denied, "%s", what+b.is).
		WithHint("only the operator can allow that, as %s%s", show(name, port), private).WithCause(ErrAddress)
}

// show is a host and a port as a rule has them.
func show(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

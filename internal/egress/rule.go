package egress

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"paddock/internal/fault"
)

const (
	// maxRules and maxRule bound a list of rules, and a rule in bytes.
	maxRules, maxRule = 1000, 600
	// private ends a rule whose host need not be public.
	private = "!private"
	// anyPort is the port of a rule that allows all of them; 0 stands for the
	// usual ones.
	anyPort = -1
)

// methods are those that are a mistake where a host is expected.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// rule is one line of a policy.
type rule struct {
	text    string
	method  string     // "": any
	host    string     // canonical; with a leading dot: what is below it; "*": all
	addr    netip.Addr // of a host that is an address
	port    int        // anyPort, 0 for 80 and 443, or the port
	path    []string   // nil: any
	private bool
}

// Split takes a line of rules apart, as a variable of the environment has them: at
// commas and white space, but not between a method and what it is for.
func Split(line string) []string {
	var rules []string
	method := ""
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		another := slices.Contains(methods, word)
		if another && method != "" { // GET,POST host: of what the first one is, nobody says
			rules = append(rules, method)
		}
		if another || method == "" && isMethod(word) {
			method = word
			continue
		}
		rules = append(rules, strings.TrimSpace(method+" "+word))
		method = ""
	}
	if method != "" {
		rules = append(rules, method)
	}
	return rules
}

// isMethod tells whether a word is written as methods are.
func isMethod(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

func parseRule(text string, rights Rights) (rule, error) {
	if len(text) > maxRule {
		return rule{}, errRule(text, "it is too long")
	}
	target, isPrivate := strings.CutSuffix(text, private)
	r := rule{text: text, private: isPrivate}
	if isPrivate && !rights.Private {
		return rule{}, fault.New(fault.Denied, "the rule %.100q reaches what is not public", text).
			WithHint("only the operator may write %s; what is allowed so already is asked for without it", private)
	}
	target, err := r.takeRequest(target, rights)
	if err != nil {
		return rule{}, errRule(text, err.Error())
	}
	host, port, err := splitRule(target)
	if err != nil {
		return rule{}, errRule(text, err.Error())
	}
	r.port = port
	if below, ok := strings.CutPrefix(host, "*."); ok {
		host = "." + below
	}
	return r, r.setHost(host, rights)
}

// takeRequest takes a rule's method and path off.
func (r *rule) takeRequest(target string, rights Rights) (string, error) {
	if method, rest, ok := strings.Cut(target, " "); ok {
		switch {
		case !rights.Requests:
			return "", errors.New("a rule has no method, and no space")
		case !isMethod(method):
			return "", errors.New("what stands before the host is not a method in capitals")
		case method == "CONNECT" || method == "TRACE":
			return "", errors.New("the method " + method + " is not let out")
		}
		r.method, target = method, rest
	}
	if slices.Contains(methods, target) {
		return "", errors.New("it is a method without a host")
	} else if slices.Contains(methods, strings.ToUpper(target)) {
		return "", errors.New("a method is written in capitals, before its host")
	}
	at := strings.IndexByte(target, '/')
	switch {
	case at < 0:
		return target, nil
	case !rights.Requests:
		return "", errors.New("a rule has no scheme and no path")
	case r.method == "" && isNetwork(target):
		return "", errors.New("it reads like a network, and a rule names one address (one with a path is written with its port)")
	case strings.HasSuffix(target[:at], ":"):
		return "", errors.New("a rule has no scheme")
	case strings.Contains(target[at:], private):
		return "", errors.New(private + " stands at its end")
	}
	pattern, err := parsePattern(target[at:])
	if err != nil {
		return "", errors.New("its path is not one that all servers read alike: " + err.Error())
	}
	if len(pattern) > 1 || pattern[0] != "*" {
		r.path = pattern
	}
	return target[:at], nil
}

// isNetwork tells whether a host with a path is how people write a range of addresses.
func isNetwork(target string) bool {
	_, err := netip.ParsePrefix(target)
	return err == nil
}

// setHost reads a rule's host.
func (r *rule) setHost(host string, rights Rights) (err error) {
	switch {
	case host == "*":
		r.host = host
		if !rights.All {
			return errWide(r.text)
		}
	case strings.HasPrefix(host, "."):
		below, err := Host(host[1:])
		if err != nil {
			return err
		}
		if _, err := netip.ParseAddr(below); err == nil {
			return errRule(r.text, "nothing is below an address")
		}
		if suffix, listed := publicsuffix.PublicSuffix(below); listed && suffix == below && !rights.All {
			return errWide(r.text)
		}
		r.host = "." + below
	default:
		if r.host, err = Host(host); err != nil {
			return err
		}
		if addr, err := netip.ParseAddr(r.host); err == nil {
			r.addr = addr
		}
		return nil
	}
	if r.private {
		return errRule(r.text, "what is not public has to be named, host by host")
	}
	return nil
}

func errWide(text string) error {
	return fault.New(fault.Denied, "the rule %.100q allows hosts that were not named", text).
		WithHint("name the hosts; only the operator may allow all of them")
}

func errRule(text, why string) error {
	return fault.New(fault.Invalid, "%.100q is not a rule for hosts: %s", text, why).
		WithHint("write api.example.com, api.example.com:8443 or *.example.com; where requests are decided about, GET api.example.com/v1/* as well")
}

// splitRule takes a rule's port off. An IPv6 address without brackets has none.
func splitRule(target string) (host string, port int, err error) {
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
		return "", 0, errors.New("its port is not a number from 1 to 65535")
	}
	return host, int(n), nil
}

// names tells whether a rule is about a canonical host, at whatever port.
func (r rule) names(host string) bool {
	switch {
	case r.host == "*":
		return true
	case r.host[0] == '.':
		_, err := netip.ParseAddr(host)
		return err != nil && len(host) > len(r.host) && strings.HasSuffix(host, r.host)
	}
	return r.host == host
}

// matches tells whether a rule is about a canonical host and a port.
func (r rule) matches(host string, port int) bool {
	if r.port == 0 && port != 80 && port != 443 || r.port > 0 && r.port != port {
		return false
	}
	return r.names(host)
}

// whole tells whether a rule allows every request to its hosts.
func (r rule) whole() bool { return r.method == "" && r.path == nil }

// takes tells whether a rule allows a method. Who may GET may ask for the header alone.
func (r rule) takes(method string) bool {
	return r.method == "" || r.method == method || r.method == "GET" && method == "HEAD"
}

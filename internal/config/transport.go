package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"paddock/internal/egress"
	kept "paddock/internal/secret"
)

// TransportHTTP is the section of the HTTP server.
type TransportHTTP struct {
	Host, Path, PublicURL, PreviewDomain  string
	Port                                  int64
	AllowedHosts, Origins, TrustedProxies []string
	TLSCert, TLSKey                       string // files; empty: no TLS
	AllowPlain, MetricsOpen               bool
	AuthToken                             string // secret; empty: none
	RateLimitRequests                     int64  // in each RateLimitWindow
	RateLimitWindow                       time.Duration
	MaxConcurrentRequests                 int64
	RequestTimeout, ShutdownGrace         time.Duration
	MaxRequestBytes                       int64
}

// leastToken is how many characters a token of the operator's own has to have:
// 16 of hexadecimal are 64 bits.
const leastToken = 16

// secret is a text that is never shown.
func secret() kind[string] {
	text := func(s string) (string, error) {
		if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", errors.New("it holds a space, or what is not ASCII")
		}
		if s != "" && len(s) < leastToken {
			return "", fmt.Errorf("it has fewer than %d characters", leastToken)
		}
		return s, nil
	}
	return kind[string]{
		accepts: fmt.Sprintf("a text of at least %d characters without spaces", leastToken),
		text:    text, file: fromString(text), data: func(s string) any {
			if s == "" {
				return ""
			}
			return "(hidden)"
		},
	}
}

// prefixes is some IP addresses or prefixes, such as 10.0.0.0/8.
func prefixes() kind[[]string] {
	return each("IP addresses and prefixes", func(s string) error {
		_, err := netip.ParseAddr(s)
		if _, wide := netip.ParsePrefix(s); err != nil && wide != nil {
			return fmt.Errorf("%q is neither an address nor a prefix", s)
		}
		return nil
	})
}

// origins is some of those that browsers send, or * for all.
func origins() kind[[]string] {
	return each("origins of the form scheme://host[:port], or *", func(s string) error {
		scheme, host, ok := strings.Cut(s, "://")
		if s != "*" && (!ok || scheme == "" || scheme == "file" || host == "" || strings.ContainsAny(host, "/*?#@ ")) {
			return fmt.Errorf("%q is not of the form scheme://host[:port]", s)
		}
		return nil
	})
}

// hosts is some names and addresses.
func hosts() kind[[]string] {
	return each("hosts, with or without a port", func(s string) error {
		if strings.ContainsAny(s, "/*?#@ ") {
			return fmt.Errorf("%q is not a host", s)
		}
		return nil
	})
}

// serverRules is some rules for hosts, and names of servers. What a rule may be is for those who read it to
// say.
func serverRules() kind[[]string] {
	return each("rules for hosts, such as api.example.com:8443 or .example.com", func(s string) error {
		if s == "" || strings.ContainsAny(s, "/?#@ ") {
			return fmt.Errorf("%q is not a rule for hosts", s)
		}
		return nil
	})
}

// secretNames are names of secrets.
func secretNames() kind[[]string] { return each("names such as GITHUB_TOKEN", kept.CheckName) }

// hostRules are rules for hosts, of whoever runs paddock.
func hostRules() kind[[]string] {
	return each("rules for hosts, such as example.com:8443 or .example.com", func(s string) error {
		_, err := egress.Parse([]string{s}, egress.Rights{All: true, Private: true})
		return err
	})
}

// requestRules are rules for hosts and requests, of whoever runs paddock. On a line they
// are apart as egress.Split takes them apart.
func requestRules() kind[[]string] {
	k := each("rules such as api.example.com, *.example.com:8443 or GET api.example.com/v1/*", func(s string) error {
		_, err := egress.Parse([]string{s}, egress.Rights{All: true, Private: true, Requests: true})
		return err
	})
	file := k.file
	k.text = func(s string) ([]string, error) {
		var rules []any
		for _, rule := range egress.Split(s) {
			rules = append(rules, rule)
		}
		return file(rules)
	}
	return k
}

// each is a list whose texts are each checked, and there once.
func each(accepts string, check func(string) error) kind[[]string] {
	return texts(accepts, func(all []string) ([]string, error) {
		for i, s := range all {
			if err := check(s); err != nil {
				return nil, err
			}
			if slices.Contains(all[:i], s) {
				return nil, fmt.Errorf("%q is there twice", s)
			}
		}
		return all, nil
	})
}

package broker

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"paddock/internal/bindings"
	"paddock/internal/fault"
	"paddock/internal/localhost"
)

// Policy says which tools of a server may be called. A pattern is a tool's name, in
// which * stands for anything and ? for one character, or one of the words below for
// what a server says of its tools. Deny comes first, then Ask, then Allow. The zero
// Policy allows every tool; where Allow has a pattern, what fits none is denied.
type Policy struct {
	Allow, Ask, Deny []string
}

// The words that stand for annotations. A server may lie about them, so they are good
// for asking more often, and no protection from a hostile server.
const (
	ReadOnly    = "@read-only"   // it says that it changes nothing
	Destructive = "@destructive" // it does not say that it only reads, or removes nothing
	OpenWorld   = "@open-world"  // it does not say that it keeps to itself
)

// Verdict is what a Policy says of a tool.
type Verdict uint8

// The verdicts; the zero one is none.
const (
	Allowed Verdict = iota + 1
	Asks            // somebody has to allow each call
	Denied
)

// Check tells what is wrong with the patterns.
func (p Policy) Check() error {
	for _, list := range [][]string{p.Allow, p.Ask, p.Deny} {
		for _, pattern := range list {
			if strings.HasPrefix(pattern, "@") {
				if pattern != ReadOnly && pattern != Destructive && pattern != OpenWorld {
					return fault.New(fault.Invalid, "%q stands for no tools", pattern).WithHint("there are %s, %s and %s", ReadOnly, Destructive, OpenWorld)
				}
				continue
			}
			if _, err := path.Match(glob(pattern), ""); err != nil || pattern == "" {
				return fault.New(fault.Invalid, "%q is not a pattern of tools' names", pattern).WithHint("in it * stands for anything and ? for one character")
			}
		}
	}
	return nil
}

// Of gives the verdict on a tool.
func (p Policy) Of(t bindings.Tool) Verdict {
	switch {
	case fits(p.Deny, t):
		return Denied
	case fits(p.Ask, t):
		return Asks
	case len(p.Allow) == 0 || fits(p.Allow, t):
		return Allowed
	}
	return Denied
}

func fits(patterns []string, t bindings.Tool) bool {
	for _, pattern := range patterns {
		var is bool
		switch pattern {
		case ReadOnly:
			is = says(t.Annotations.ReadOnly, true)
		case Destructive:
			is = !says(t.Annotations.ReadOnly, true) && !says(t.Annotations.Destructive, false)
		case OpenWorld:
			is = !says(t.Annotations.OpenWorld, false)
		default:
			is, _ = path.Match(glob(pattern), strings.ReplaceAll(t.Name, "/", "\x00"))
		}
		if is {
			return true
		}
	}
	return false
}

// glob is a pattern in the words of package path: only * and ? mean anything, and a
// slash is a character as any other.
func glob(pattern string) string {
	return strings.NewReplacer("/", "\x00", `\`, `\\`, "[", `\[`).Replace(pattern)
}

func says(hint *bool, what bool) bool { return hint != nil && *hint == what }

// Narrowed is the policy of who wants only some of a server's tools: those that fit one
// of the patterns, or all where there are none but such that begin with an exclamation
// mark, and of these none that fits what follows the mark. No patterns are no tools.
func Narrowed(patterns []string) Policy {
	var p Policy
	for _, pattern := range patterns {
		if not, ok := strings.CutPrefix(pattern, "!"); ok {
			p.Deny = append(p.Deny, not)
		} else {
			p.Allow = append(p.Allow, pattern)
		}
	}
	if len(patterns) == 0 {
		p.Deny = []string{"*"}
	}
	return p
}

// says tells whether a policy says anything.
func (p Policy) says() bool { return len(p.Allow)+len(p.Ask)+len(p.Deny) > 0 }

// verdict is the strictest that the rules of a server give on a tool, and the rule that
// gives it.
func (one *serverBinding) verdict(t bindings.Tool) (v Verdict, by rule) {
	for _, r := range one.rules {
		if is := r.Of(t); is > v {
			v, by = is, r
		}
	}
	return v, by
}

// allows tells whether a tool may be called at all.
func (one *serverBinding) allows(t bindings.Tool) bool {
	v, _ := one.verdict(t)
	return v != Denied
}

// narrowed is a server of the operator's for a session that has only some of its tools.
func (one *serverBinding) narrowed(to Policy) *serverBinding {
	less := *one
	less.rules = append(slices.Clone(one.rules), rule{Policy: to})
	less.signed()
	return &less
}

// newOwn is newServerBinding for a server that a session bound. What the operator says of
// servers that are bound counts, and what is said of a server counts for whatever is
// bound at its host and port: under another name, or by another path, it is the same one
// for all that can be told.
func (b *Broker) newOwn(d Definition, s *Session) *serverBinding {
	one := newServerBinding(d, s)
	if b.config.Bound.says() {
		one.rules = append(one.rules, rule{"mcp.tools", b.config.Bound})
	}
	place, err := placeOf(d.URL)
	for _, name := range b.Common() {
		theirs := b.common[name]
		there, none := placeOf(theirs.URL)
		if err == nil && none == nil && there == place {
			one.rules = append(one.rules, rule{keyOfTools(name), theirs.Policy})
			one.rate = cmp.Or(one.rate, theirs.rate)
		}
	}
	one.signed()
	return one
}

// placeOf is where a URL leads; this host's loopback addresses are one place.
func placeOf(rawURL string) (target, error) {
	t, err := targetOf(rawURL)
	if localhost.Is(t.host) {
		t.host = "localhost"
	}
	return t, err
}

// String names the verdict.
func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Asks:
		return "asked"
	case Denied:
		return "denied"
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

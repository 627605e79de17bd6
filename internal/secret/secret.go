// Package secret keeps what gives access to other people's servers, and lets programs use
// it without having it. A program has a placeholder, which is worth nothing; the proxy
// through which its requests leave puts the value in, where the secret's owner has said
// that it may go, and takes it out of what comes back.
//
// The [Store] keeps secrets, sealed by a vault, and which session was given which of them.
// An [Engine] is one session's and does the work at its proxy.
//
// A placeholder belongs to one session: anywhere else it is refused, and so is text that
// only looks like one. Which session that is decides, and not who has read the
// placeholder: it may be printed, kept in a file, or be in a snapshot. A fork has no
// secrets until it is given some; see [Store.Give].
//
// Locks: Engine.mu before Store.mu; within Store.mu nothing else is locked but, while the
// store is changed, the folder's lock.
package secret

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

const (
	// minValue and maxValue bound a value in bytes. A shorter one stands in so many texts
	// by chance that to take it out of answers would destroy them, and could be guessed.
	// A key of a Google service account has some 2,400, one for RSA of 4,096 bits 3,300.
	minValue, maxValue = 8, 8 << 10
	maxName            = 64
	maxHosts           = 50
)

// hidden is what is seen of a value wherever it is printed.
const hidden = "(hidden)"

// Value is a secret's value. However it is printed, logged or encoded, it is not seen.
type Value struct{ text []byte }

// NewValue makes a Value of a copy of text.
func NewValue(text []byte) Value { return Value{slices.Clone(text)} }

// String, and what follows, hide the value.
func (Value) String() string { return hidden }

// GoString hides the value.
func (Value) GoString() string { return hidden }

// Format hides the value, whatever the verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalJSON hides the value.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalText hides the value.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the value.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// check says why a value cannot be kept, of which nothing is said.
func (v Value) check(in places) error {
	switch {
	case len(v.text) < minValue:
		return fault.New(fault.Invalid, "the value has fewer than %d bytes", minValue).
			WithHint("so short a value occurs in many texts by chance, and could be guessed")
	case len(v.text) > maxValue:
		return fault.New(fault.Invalid, "the value has more than %d KiB", maxValue>>10)
	case strings.Contains(strings.ToLower(string(v.text)), Marker):
		return fault.New(fault.Invalid, "the value is a placeholder, or holds one")
	case in.needHeader() && !fitsHeader(v.text):
		return fault.New(fault.Invalid, "the value has more than one line, or control characters, which no header can hold").
			WithHint("say where it may stand without header, such as --in basic or --in body")
	}
	return nil
}

// fitsHeader tells whether a header can hold a text.
func fitsHeader(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// reserved are names of variables that programs need for something else.
var reserved = []string{"ALL_PROXY", "CURL_CA_BUNDLE", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_ALL", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NO_PROXY",
	"PATH", "PWD", "REQUESTS_CA_BUNDLE", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER"}

// CheckName says why a secret cannot be called that: it is the name of a variable too.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || name[0] >= '0' && name[0] <= '9':
		return fault.New(fault.Invalid, "%.80q cannot be a secret's name", name).
			WithHint("a name has 1 to %d capital letters, digits and underscores, and does not begin with a digit: GITHUB_TOKEN", maxName)
	case slices.Contains(reserved, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "PYTHON") || strings.HasPrefix(name, "PADDOCK_"):
		return fault.New(fault.Invalid, "%s is a variable that programs need for something else", name).WithHint("choose another name, such as MY_%.50s", name)
	}
	return nil
}

// inTheClear begins a rule for a host that may have the value without TLS.
const inTheClear = "http://"

// hosts say where a value may go. The zero hosts are nowhere.
type hosts struct{ secure, plain egress.Policy }

// parseHosts reads rules, as package egress has them; one that begins with http:// is for
// requests without TLS too. All mistakes are told at once. Whether a host is public is
// the session's network's to decide, not the secret's.
func parseHosts(rules []string) (hosts, error) {
	if len(rules) > maxHosts {
		return hosts{}, fault.New(fault.Invalid, "there are more than %d hosts", maxHosts)
	}
	var secure, plain []string
	for _, text := range rules {
		rule, inClear := strings.CutPrefix(text, inTheClear)
		_, target, found := strings.Cut(rule, " ")
		if !found {
			target = rule
		}
		if !strings.HasSuffix(rule, private) && !strings.HasPrefix(target, "*") && !strings.HasPrefix(target, ".") {
			rule += private
		}
		if secure = append(secure, rule); inClear {
			plain = append(plain, rule)
		}
	}
	var h hosts
	var err error
	if h.secure, err = egress.Parse(secure, egress.Rights{Private: true, Requests: true}); err != nil {
		return hosts{}, err
	}
	h.plain, err = egress.Parse(plain, egress.Rights{Private: true, Requests: true})
	return h, err
}

const private = "!private"

// may tells whether a value may go with a request.
func (h hosts) may(scheme string, r egress.Request) bool {
	p := h.plain
	if scheme == "https" {
		p = h.secure
	}
	_, err := p.CheckRequest(r)
	return err == nil
}

// near tells whether some request with a value may go to a host.
func (h hosts) near(host string, port int) bool { return h.secure.Reach(host, port) == nil }

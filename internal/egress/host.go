package egress

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"paddock/internal/fault"
)

// maxHost bounds a host's name, in bytes: DNS takes 253.
const maxHost = 253

// names maps what people write to what DNS asks for: lower case, ASCII, and
// compatible forms (a full-width digit, an ideographic full stop) as what they
// stand for. An underscore passes, as it does in the names of services.
var names = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.StrictDomainName(false), idna.VerifyDNSLength(false))

// Host is the one way to write a host: a name in lower case and ASCII without a
// final dot, or an IP address as [net/netip] writes it, without brackets; an
// IPv4 address that is written as an IPv6 one (::ffff:127.0.0.1) is the IPv4
// address. What another program might read as something else is a
// fault.Invalid: an address in an odd form (2130706433, 0177.0.0.1, 0x7f.1,
// 127.1), a zone, a user, an escape, a control character.
func Host(text string) (string, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil || !strings.Contains(inner, ":") || addr.Zone() != "" {
			return "", errHost(text, "it is not an IPv6 address in brackets")
		}
		return addr.Unmap().String(), nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return "", errHost(text, "it names a zone of this host")
		}
		return addr.Unmap().String(), nil
	}
	if err := checkBytes(text); err != nil {
		return "", err
	}
	name, err := names.ToASCII(text)
	if err != nil {
		return "", errHost(text, "it is not a name that DNS can ask for").WithCause(err)
	}
	name = strings.TrimSuffix(name, ".")
	if err := checkName(text, name); err != nil {
		return "", err
	}
	return name, nil
}

// checkBytes refuses what has no place in a host's name, before anything is
// mapped.
func checkBytes(text string) error {
	if text == "" || len(text) > 4*maxHost {
		return errHost(text, "it is empty or too long")
	}
	if !utf8.ValidString(text) {
		return errHost(text, "it is not UTF-8")
	}
	for _, r := range text {
		if r <= ' ' || r == 0x7f || strings.ContainsRune("@/\\?#%:[]<>^|\"'`*,;=&+!$(){}~", r) {
			return errHost(text, "it holds a character that no host's name has")
		}
	}
	return nil
}

// checkName checks what the mapping gave.
func checkName(text, name string) error {
	if name == "" || len(name) > maxHost {
		return errHost(text, "it is empty or too long")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 {
			return errHost(text, "a part of it is empty or too long")
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return errHost(text, "it holds a character that no host's name has")
			}
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return fault.New(fault.Invalid, "the host %.100q is the address %s in other characters", text, addr).WithHint("write the address")
	}
	if last := labels[len(labels)-1]; numeric(last) {
		return errHost(text, "it is an IP address in a form that not all programs read alike")
	}
	return nil
}

// numeric tells whether a last label makes browsers and C libraries read the
// whole name as an IPv4 address: digits, or a hexadecimal number.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func errHost(text, why string) *fault.Error {
	return fault.New(fault.Invalid, "%.100q is not a host: %s", text, why).WithHint("write a name such as api.example.com, or an address such as 192.0.2.1 or [2001:db8::1]")
}

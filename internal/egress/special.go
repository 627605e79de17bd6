package egress

import (
	"net/netip"
	"slices"
)

// block is a range of addresses with a purpose of its own.
type block struct {
	prefix netip.Prefix
	is     string
	// public tells that it is reached over the Internet all the same.
	public bool
	// exact tells that a rule has to name the very address: a name that leads
	// there is not enough, whatever its rule says.
	exact bool
}

func row(prefix, is string) block       { return block{prefix: netip.MustParsePrefix(prefix), is: is} }
func rowPublic(prefix, is string) block { return block{netip.MustParsePrefix(prefix), is, true, false} }
func rowExact(prefix, is string) block  { return block{netip.MustParsePrefix(prefix), is, false, true} }

// blocks are the IANA special-purpose address registries for IPv4 and IPv6 (RFC
// 6890 and what came later, up to RFC 9780), the multicast ranges, and where
// clouds keep the metadata of machines. The longest prefix that holds an address
// counts. Of IPv6, what is not in 2000::/3 (RFC 4291) is public only by a row.
var blocks = sorted([]block{
	row("0.0.0.0/8", "an address of this host"),
	row("10.0.0.0/8", "a private address"),
	row("100.64.0.0/10", "an address of a carrier's network"),
	row("127.0.0.0/8", "a loopback address"),
	row("169.254.0.0/16", "a link-local address"),
	row("172.16.0.0/12", "a private address"),
	row("192.0.0.0/24", "an address for protocols"),
	rowPublic("192.0.0.9/32", "a relay for port control"),
	rowPublic("192.0.0.10/32", "a relay for TURN"),
	row("192.0.2.0/24", "an address for documents"),
	rowPublic("192.31.196.0/24", "AS112"),
	rowPublic("192.52.193.0/24", "AMT"),
	row("192.88.99.0/24", "a relay for 6to4"),
	row("192.168.0.0/16", "a private address"),
	rowPublic("192.175.48.0/24", "AS112"),
	row("198.18.0.0/15", "an address for benchmarks"),
	row("198.51.100.0/24", "an address for documents"),
	row("203.0.113.0/24", "an address for documents"),
	row("224.0.0.0/4", "a multicast address"),
	row("240.0.0.0/4", "a reserved address"),
	row("255.255.255.255/32", "the broadcast address"),

	row("::/0", "an address outside of the public ones"),
	rowPublic("2000::/3", "a public address"),
	row("::/128", "an address of this host"),
	row("::1/128", "a loopback address"),
	row("::ffff:0:0/96", "an IPv4 address within IPv6"),
	row("64:ff9b:1::/48", "an address of a local translator"),
	row("100::/64", "an address for what is discarded"),
	row("100:0:0:1::/64", "an address for what is discarded"),
	row("2001::/23", "an address for protocols"),
	row("2001::/32", "a Teredo address"),
	rowPublic("2001:1::1/128", "a relay for port control"),
	rowPublic("2001:1::2/128", "a relay for TURN"),
	rowPublic("2001:1::3/128", "service registration"),
	row("2001:2::/48", "an address for benchmarks"),
	rowPublic("2001:3::/32", "AMT"),
	rowPublic("2001:4:112::/48", "AS112"),
	row("2001:10::/28", "an identifier and no address"),
	row("2001:20::/28", "an identifier and no address"),
	row("2001:30::/28", "an identifier and no address"),
	row("2001:db8::/32", "an address for documents"),
	row("2002::/16", "a 6to4 address"),
	rowPublic("2620:4f:8000::/48", "AS112"),
	row("3fff::/20", "an address for documents"),
	row("5f00::/16", "an identifier of a segment"),
	row("fc00::/7", "a private address"),
	row("fe80::/10", "a link-local address"),
	row("fec0::/10", "a site-local address"),
	row("ff00::/8", "a multicast address"),

	rowExact("169.254.169.254/32", "where clouds keep a machine's credentials"),
	rowExact("169.254.169.253/32", "where clouds keep a machine's credentials"),
	rowExact("169.254.169.249/32", "where clouds keep a machine's credentials"),
	rowExact("169.254.170.2/32", "where clouds keep a machine's credentials"),
	rowExact("169.254.170.23/32", "where clouds keep a machine's credentials"),
	rowExact("169.254.0.23/32", "where clouds keep a machine's credentials"),
	rowExact("100.100.100.200/32", "where clouds keep a machine's credentials"),
	rowExact("168.63.129.16/32", "where clouds keep a machine's credentials"),
	rowExact("192.0.0.192/32", "where clouds keep a machine's credentials"),
	rowExact("fd00:ec2::254/128", "where clouds keep a machine's credentials"),
	rowExact("fd00:ec2::23/128", "where clouds keep a machine's credentials"),
	rowExact("fd20:ce::254/128", "where clouds keep a machine's credentials"),
	rowExact("fd00:c1::a9fe:a9fe/128", "where clouds keep a machine's credentials"),
})

// sorted puts the longest prefixes first.
func sorted(all []block) []block {
	slices.SortStableFunc(all, func(a, b block) int { return b.prefix.Bits() - a.prefix.Bits() })
	return all
}

// nat64 is how an IPv6-only network writes IPv4 addresses (RFC 6052): such an
// address leads where the last four bytes say.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// plain is the address that packets reach in the end.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// blockOf finds what an address is for; a zero block: an ordinary public one.
func blockOf(addr netip.Addr) block {
	for _, b := range blocks {
		if b.prefix.Contains(addr) {
			return b
		}
	}
	return block{public: true}
}

// Public tells whether an address is one of the Internet's, as which no address of
// this host, of its network, of its cloud or of many receivers counts, in whatever
// way it is written.
func Public(addr netip.Addr) bool {
	return addr.IsValid() && addr.Zone() == "" && blockOf(plain(addr)).public
}

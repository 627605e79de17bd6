// Package localhost knows by which hosts a URL names this machine.
package localhost

import "net/netip"

// Is reports whether a URL's host, without its port, is this machine: the name localhost or
// a loopback address, also one of IPv4 that is written as one of IPv6. No name is resolved.
func Is(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

#!/usr/bin/env bash
# Unpacks the clients of HTTP that tests/network has programs use, from Debian's
# packages, checked by their digests. They are kept in the build cache by the digest of
# what they are made from; nothing is done when they are there. Prints the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/network.lock"
flock 9
. "$here/../../guest/build/lib.sh"

dir=$cache/network-$(cat "$here/libraries.sh" "$here/sources.txt" | sha256sum | cut -c1-16)
if [ ! -d "$dir" ]; then
	rm -rf "$dir.tmp" && mkdir -p "$dir.tmp/unpacked"
	while read -r sum pool upstream; do
		fetch_source "$sum" "$pool" "$upstream"
		ar p "$cache/sources/$sum" data.tar.xz | tar -xJ -C "$dir.tmp/unpacked"
	done < <(grep -v '^#' "$here/sources.txt")
	mv "$dir.tmp/unpacked/usr/lib/python3/dist-packages" "$dir.tmp/site"
	# Debian's libraries look for authorities where Debian has them.
	mkdir -p "$dir.tmp/certs" && echo "no certificate is looked at in a sandbox" >"$dir.tmp/certs/ca-certificates.crt"
	rm -rf "$dir.tmp/unpacked" && chmod -R a+rX "$dir.tmp"
	mv -T "$dir.tmp" "$dir"
fi
printf '%s\n' "$dir"

#!/usr/bin/env bash
# Installs the MCP clients that the tests use, as package-lock.json pins them,
# into the build cache; does nothing when they are there. Prints where.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
dir=$cache/clients-$(sha256sum "$here/package-lock.json" | cut -c1-16)
mkdir -p "$cache"
exec 9>"$cache/clients.lock"
flock 9
if [ ! -d "$dir" ]; then
	if ! command -v npm >/dev/null; then
		echo "paddock: installing nodejs and npm with apt" >&2
		sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
		$sudo apt-get update -qq >&2
		DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends nodejs npm >"$cache/apt.log" 2>&1 ||
			{ echo "paddock: error: apt could not install nodejs and npm; see $cache/apt.log" >&2; exit 1; }
	fi
	echo "paddock: installing the MCP clients for the tests" >&2
	rm -rf "$dir.tmp" && mkdir -p "$dir.tmp"
	cp "$here/package.json" "$here/package-lock.json" "$dir.tmp/"
	(cd "$dir.tmp" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
	mv "$dir.tmp" "$dir"
fi
echo "$dir"

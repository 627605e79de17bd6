#!/usr/bin/env bash
# Fetches QuickJS-NG from npm and bundles the driver.
#
#   javascript.sh OUT    leaves OUT/quickjs.wasm, OUT/driver.js, OUT/licenses
#
# npm's registry is the one that this machine is set up with; what comes from
# it is pinned by package-lock.json's digests and kept in $PADDOCK_CACHE.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
js=$here/../js
out=$(realpath -m "${1:?usage: javascript.sh OUT}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache" "$out"
exec 9>"$cache/lock"
flock 9

say() { printf 'paddock: guest: %s\n' "$*" >&2; }
die() { printf 'paddock: error: %s\npaddock: hint: %s\n' "$1" "$2" >&2; exit 1; }

modules=$cache/javascript-$(sha256sum "$js/driver/package-lock.json" | cut -c1-16)
if [ ! -d "$modules" ]; then
	if ! command -v npm >/dev/null; then
		command -v apt-get >/dev/null || die "the JavaScript guest needs npm" "install it with your system's package manager, then run make again"
		sudo=
		if [ "$(id -u)" != 0 ]; then
			sudo -n true 2>/dev/null || die "the JavaScript guest needs npm" "run as root, once: apt-get install nodejs npm"
			sudo=sudo
		fi
		say "installing nodejs and npm with apt"
		$sudo apt-get update -qq >&2
		DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends nodejs npm >"$cache/apt.log" 2>&1 ||
			die "apt could not install nodejs and npm" "see $cache/apt.log"
	fi
	say "javascript: fetching QuickJS-NG and the driver's modules"
	rm -rf "$cache/work/javascript" && mkdir -p "$cache/work/javascript"
	cp "$js/driver/package.json" "$js/driver/package-lock.json" "$cache/work/javascript/"
	(cd "$cache/work/javascript" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error 9>&- >&2) ||
		die "npm could not fetch the modules" "check the network and npm's settings, then run make again"
	mv -T "$cache/work/javascript" "$modules"
fi

# The driver is copied there, so that its imports are found beside it.
rm -rf "$modules/src" && mkdir "$modules/src" && cp "$js"/driver/*.js "$modules/src/"
(cd "$here/../.." && go run github.com/evanw/esbuild/cmd/esbuild "$modules/src/driver.js" --bundle --format=iife \
	--global-name=paddockInstall --target=es2023 --charset=utf8 --legal-comments=none --log-level=error \
	--minify-whitespace --footer:js='paddockInstall.default' --outfile="$out/driver.js")
cp "$modules/node_modules/quickjs-wasi/quickjs.wasm" "$out/quickjs.wasm"
mkdir -p "$out/licenses"
for name in @jridgewell/{trace-mapping,sourcemap-codec,resolve-uri} acorn buffer base64-js ieee754 core-js-pure events path-browserify quickjs-wasi; do
	for file in LICENSE LICENSE.md; do
		[ ! -f "$modules/node_modules/$name/$file" ] || cp "$modules/node_modules/$name/$file" "$out/licenses/${name#@*/}"
	done
done

#!/usr/bin/env bash
# Fetches QuickJS-NG from npm and bundles the driver.
#
#   javascript.sh OUT    leaves OUT/quickjs.wasm, OUT/driver.js, OUT/licenses
#
# What comes from npm is pinned by package-lock.json's digests and kept in
# $PADDOCK_CACHE.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
js=$here/../js
out=$(realpath -m "${1:?usage: javascript.sh OUT}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache" "$out"
exec 9>"$cache/javascript.lock"
flock 9

. "$here/lib.sh"

modules=$cache/javascript-$(sha256sum "$js/driver/package-lock.json" | cut -c1-16)
node_packages "$modules" "$js/driver" "the JavaScript guest"

# The driver is copied there, so that its imports are found beside it.
rm -rf "$modules/src" && mkdir "$modules/src" && cp "$js"/driver/*.js "$modules/src/"
# esbuild writes paths into the bundle as they look from where it runs.
(cd "$here/../.." && CGO_ENABLED=0 go build -o "$modules/esbuild" github.com/evanw/esbuild/cmd/esbuild)
(cd "$modules" && ./esbuild src/driver.js --bundle --format=iife \
	--global-name=paddockInstall --target=es2023 --charset=utf8 --legal-comments=none --log-level=error \
	--alias:abort-controller=./src/abort.js --minify-whitespace --footer:js='paddockInstall.default' --outfile="$out/driver.js")
cp "$modules/node_modules/quickjs-wasi/quickjs.wasm" "$out/quickjs.wasm"
rm -rf "$out/licenses" && mkdir -p "$out/licenses" # nothing of another checkout's packages
for name in @jridgewell/{trace-mapping,sourcemap-codec,resolve-uri} acorn buffer base64-js ieee754 core-js-pure events pako path-browserify process quickjs-wasi readable-stream safe-buffer string_decoder web-streams-polyfill; do
	for file in LICENSE LICENSE.md; do
		[ ! -f "$modules/node_modules/$name/$file" ] || cp "$modules/node_modules/$name/$file" "$out/licenses/${name#@*/}"
	done
done

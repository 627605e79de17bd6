#!/usr/bin/env bash
# Checks and bundles the console, with the packages that package-lock.json pins.
#
#   build.sh OUT    leaves OUT/index.html, OUT/app.js, OUT/app.css and OUT/LICENSES.txt
#
# What comes from npm is kept in $PADDOCK_CACHE, and what the tests check pages with is at
# $PADDOCK_CACHE/axe.min.js.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?usage: build.sh OUT}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache" "$out"
exec 9>"$cache/console.lock"
flock 9

. "$here/../guest/build/lib.sh"

modules=$cache/console-$(sha256sum "$here/package-lock.json" | cut -c1-16)
node_packages "$modules" "$here" "the console"

# The sources are copied there, so that their imports are found beside them.
rm -rf "$modules/src" && cp -r "$here/src" "$here/tsconfig.json" "$modules/"
(cd "$modules" && node_modules/.bin/tsc -p .)
# esbuild writes paths into the bundle as they look from where it runs.
(cd "$here/.." && CGO_ENABLED=0 go build -o "$modules/esbuild" github.com/evanw/esbuild/cmd/esbuild)
(cd "$modules" && ./esbuild src/app.tsx src/app.css --bundle --format=esm --jsx=automatic --jsx-import-source=preact \
	--target=es2022 --charset=utf8 --legal-comments=none --log-level=error --minify --outdir="$out")
cp "$modules/src/index.html" "$out/"
{ echo "Preact:"; echo; cat "$modules/node_modules/preact/LICENSE"; } >"$out/LICENSES.txt"
cp "$modules/node_modules/axe-core/axe.min.js" "$cache/axe.min.js.tmp" && mv "$cache/axe.min.js.tmp" "$cache/axe.min.js"
touch "$out/stamp"

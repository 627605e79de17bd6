#!/usr/bin/env bash
# build.sh OUT VERSION LINUX DARWIN WINDOWS: packs the three binaries into
# OUT/paddock.mcpb and writes OUT/server.json beside it. The same binaries give
# the same bundle, byte for byte. mcpb comes from npm, as npm/package-lock.json
# pins it; the registry's schema from the registry's own Go module.
#
# What is published says who publishes it: PADDOCK_REGISTRY_NAME is the server's
# name in the registry, PADDOCK_RELEASE_URL where the bundle will lie.
set -euo pipefail
[ $# = 5 ] || { echo "usage: build.sh OUT VERSION LINUX DARWIN WINDOWS" >&2; exit 2; }
out=$1 version=$2 linux=$3 darwin=$4 windows=$5
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache" "$out"
. "$here/../guest/build/lib.sh"

registry=github.com/modelcontextprotocol/registry@v1.8.7
registry_sum=h1:k5j6R6gyiaHuHFLwvUzE9ojD7QMtBM6Ibpq5pz6Dj5o=
name=${PADDOCK_REGISTRY_NAME:-io.github.example/paddock}
url=${PADDOCK_RELEASE_URL:-https://github.com/example/paddock/releases/download/v$version/paddock.mcpb}

exec 9>"$cache/package.lock"
flock 9
tools=$cache/package-$(sha256sum "$here/npm/package-lock.json" | cut -c1-16)
node_packages "$tools" "$here/npm" "the bundle"
mcpb=$tools/node_modules/.bin/mcpb

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
module=$(cd "$work" && GOFLAGS= go mod download -json "$registry") || die "the registry's schema cannot be fetched" "check Go's module proxy"
grep -qF "\"Sum\": \"$registry_sum\"" <<<"$module" || die "$registry is not what it was"
schema=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$module")/internal/validators/schemas/2025-12-11.json

mkdir -p "$work/bundle/server"
install -m 755 "$linux" "$work/bundle/server/paddock-linux"
install -m 755 "$darwin" "$work/bundle/server/paddock-darwin"
install -m 755 "$windows" "$work/bundle/server/paddock.exe"
install -m 644 "$here/../LICENSE" "$here/../NOTICE" "$work/bundle/"
sed "s|@VERSION@|$version|" "$here/manifest.json" >"$work/bundle/manifest.json"
sed "s|@VERSION@|$version|; s|@NAME@|$name|; s|@URL@|$url|" "$here/server.json" >"$work/server.json"

"$mcpb" validate "$work/bundle/manifest.json" >"$work/log" || { cat "$work/log" >&2; die "mcpb refuses the manifest"; }
"$mcpb" pack "$work/bundle" "$work/packed.mcpb" >"$work/log" || { cat "$work/log" >&2; die "mcpb cannot pack the bundle"; }
(cd "$here/.." && go run ./packaging/bundle "$work/packed.mcpb" "$out/paddock.mcpb" "$work/server.json" "$out/server.json" "$schema")
"$mcpb" info "$out/paddock.mcpb" >"$work/log" || { cat "$work/log" >&2; die "mcpb cannot read the bundle"; }
[[ $name != *.example/* ]] || say "server.json names io.github.example: set PADDOCK_REGISTRY_NAME and PADDOCK_RELEASE_URL before you publish it"

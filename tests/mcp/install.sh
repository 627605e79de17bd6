#!/usr/bin/env bash
# Installs what the tests of MCP use, as package-lock.json pins it, with a Node
# to run it,
# into the build cache; does nothing when they are there. Prints where.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/mcp.lock"
flock 9
. "$here/../../guest/build/lib.sh"
dir=$cache/mcp-$(sha256sum "$here/package-lock.json" | cut -c1-16)
node_packages "$dir" "$here" "the tests"
echo "$dir"

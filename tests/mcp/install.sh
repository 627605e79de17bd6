#!/usr/bin/env bash
# Installs MCP's conformance suite, inspector and clients, and the Node that they
# need, as package-lock.json pins them, into the build cache; does nothing when
# they are there. Prints where.
#
#   install.sh            those of this folder
#   install.sh clients    those of clients: libraries for agents
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
from=$here/${1:-}
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/mcp.lock"
flock 9
. "$here/../../guest/build/lib.sh"
dir=$cache/mcp-${1:+$1-}$(sha256sum "$from/package-lock.json" | cut -c1-16)
node_packages "$dir" "$from" "the tests of MCP"
echo "$dir"

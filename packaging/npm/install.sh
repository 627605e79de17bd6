#!/usr/bin/env bash
# Installs Anthropic's mcpb from npm, as package-lock.json pins it, into the build cache and
# prints the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
. "$here/../../guest/build/lib.sh"
exec 9>"$cache/package.lock"
flock 9
tools=$cache/package-$(sha256sum "$here/package-lock.json" | cut -c1-16)
node_packages "$tools" "$here" "the check of bundles"
echo "$tools"

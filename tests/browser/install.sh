#!/usr/bin/env bash
# Makes sure of the browser that the tests of previews drive: Chromium, from Debian's
# packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/browser.lock"
flock 9
. "$here/../../guest/build/lib.sh"

command -v chromium >/dev/null || packages "the tests of previews in a browser" chromium

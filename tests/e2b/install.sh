#!/usr/bin/env bash
# Installs E2B's SDKs, as package-lock.json and requirements.txt pin them, into the build
# cache; does nothing when they are there. Prints where.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/e2b.lock"
flock 9
. "$here/../../guest/build/lib.sh"
dir=$cache/e2b-$(cat "$here/package-lock.json" "$here/requirements.txt" | sha256sum | cut -c1-16)
if [ ! -d "$dir" ]; then
	rm -rf "$dir.made"
	node_packages "$dir.made" "$here" "the tests of E2B's SDKs"
	say "fetching E2B's SDK from PyPI"
	python3 -m venv "$dir.made/venv"
	"$dir.made/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" 9>&- >&2
	mv -T "$dir.made" "$dir"
fi
echo "$dir"

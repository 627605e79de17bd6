#!/usr/bin/env bash
# Builds the guests a second time, from nothing and in another folder, and
# compares: verify.sh DIR, where DIR holds the packed guests.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packed=$(realpath "${1:?usage: verify.sh DIR}")
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
mkdir -p "$again/cache"
# The sources are checked by their digests; there is no need to fetch them twice.
cp -r "${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}/sources" "$again/cache/sources"
PADDOCK_CACHE=$again/cache bash "$here/guests.sh" "$again/dist"
for guest in python javascript; do
	cmp "$packed/$guest.zip" "$again/dist/$guest.zip" || { echo "paddock: error: two builds of the $guest guest differ" >&2; exit 1; }
	echo "paddock: guest: two builds of $guest are the same: $(sha256sum <"$packed/$guest.zip" | cut -c1-16)"
done

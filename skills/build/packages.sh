#!/usr/bin/env bash
# Packs what the ready skills need of other people's into DIR: packages.sh DIR
#
# The sources are Debian's, checked by their digests; the build cache keeps them
# and what is made of them, by the digest of all that went into it.
set -euo pipefail
export LC_ALL=C TZ=UTC PYTHONHASHSEED=0
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?usage: packages.sh DIR}")
export PADDOCK_CACHE=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
cache=$PADDOCK_CACHE
mkdir -p "$cache"
exec 9>"$cache/skills.lock"
flock 9
. "$here/../../guest/build/lib.sh"

# The modules are compiled by a Python of the guest's version.
native=$cache/out/python/native.path
[ -f "$native" ] && [ -x "$(cat "$native")/bin/python3.13" ] || bash "$here/../../guest/build/python.sh" "$cache/out/python" 9>&-
python=$(cat "$native")/bin/python3.13

dir=$cache/skills-$({ echo "${python%/bin/*}"; cat "$here/packages.sh" "$here/pack.py" "$here/sources.txt"; } | sha256sum | cut -c1-16)
if [ ! -d "$dir" ]; then
	say "packing what the skills need"
	rm -rf "$cache"/skills-*.tmp && mkdir -p "$dir.tmp/src"
	while read -r sum pool upstream; do
		fetch_source "$sum" "$pool" "$upstream"
		name=${pool##*/} name=${name%%_*}
		mkdir "$dir.tmp/src/$name"
		case $pool in
		*.deb) ar p "$cache/sources/$sum" data.tar.xz | tar -xJ -C "$dir.tmp/src/$name" ;;
		*) tar -xf "$cache/sources/$sum" -C "$dir.tmp/src/$name" --strip-components=1 ;;
		esac
	done < <(grep -v '^#' "$here/sources.txt")
	"$python" "$here/pack.py" "$dir.tmp/src" "$dir.tmp/packages.zip" >&2 || die "packing what the skills need ended with an error"
	rm -rf "$dir.tmp/src" "$cache"/skills-*[0-9a-f]
	mv -T "$dir.tmp" "$dir"
fi
mkdir -p "$out/documents/lib"
cp "$dir/packages.zip" "$out/documents/lib/packages.zip"
touch "$out/stamp"

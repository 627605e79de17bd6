#!/usr/bin/env bash
# Fetches test262, the tests of the language itself, into the build cache; does
# nothing when they are there. Prints where. Qt's source package in Debian
# carries them as they stood in 2019; its other files are not kept.
set -euo pipefail
sum=1a1ba5ca63ce147ccf172736173af23d6fac4dc1bfdc5eb8fd61f1a5bde8c47a
pool=pool/main/q/qt6-declarative/qt6-declarative_6.8.2+dfsg.orig.tar.xz
inside=qtdeclarative-everywhere-src-6.8.2/tests/auto/qml/ecmascripttests/test262

cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/test262.lock"
flock 9
. "$(dirname "$0")/../../guest/build/lib.sh"
dir=$cache/test262-${sum:0:16}
if [ ! -d "$dir" ]; then
	command -v curl >/dev/null && command -v xz >/dev/null || packages "the tests" curl ca-certificates xz-utils
	fetch_source "$sum" "$pool" -
	rm -rf "$dir.tmp" && mkdir -p "$dir.tmp"
	tar -xf "$cache/sources/$sum" -C "$dir.tmp" --strip-components=6 "$inside/LICENSE" "$inside/harness" "$inside/test/language" "$inside/test/built-ins"
	rm "$cache/sources/$sum"
	mv -T "$dir.tmp" "$dir"
fi
echo "$dir"

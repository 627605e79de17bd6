#!/usr/bin/env bash
# Makes sure of the tools that the tests of the engines need: the wasm2c and the
# compiler that translate the guests, and binaryen for random modules. Prints
# the folder of wasm2c, the compiler's flags, and what identifies all of it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/engines.lock"
flock 9
. "$here/../../guest/build/lib.sh"
. "$here/../../guest/build/native/flags.sh"

missing=()
command -v clang-19 >/dev/null || missing+=(clang-19)
command -v ar >/dev/null || missing+=(binutils)
command -v wasm-opt >/dev/null || missing+=(binaryen)
[ ${#missing[@]} = 0 ] || packages "the tests of the engines" "${missing[@]}"
dir=$cache/engines-wasm2c-${wabt:0:16}
if [ ! -d "$dir" ]; then
	rm -rf "$dir.tmp" && mkdir -p "$dir.tmp"
	fetch_wasm2c "$dir.tmp"
	mv -T "$dir.tmp" "$dir"
fi
"$dir/usr/bin/wasm2c" --version >/dev/null || die "wasm2c does not run on this machine" "the tests of the engines need linux/amd64"
echo "$dir/usr"
echo "$flags"
echo "$wabt $(clang-19 --version | head -n 1) $(wasm-opt --version) $(uname -m)"

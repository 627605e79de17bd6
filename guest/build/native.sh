#!/usr/bin/env bash
# Translates the built guests ahead of time: native.sh DIR leaves
# DIR/libguests.a and DIR/wasm-rt.h for the package internal/sandbox/wasm/native.
#
# wasm2c comes from Debian's package wabt, pinned by its digest; the compiler is
# the one that built the guests. The result is kept in $PADDOCK_CACHE by the
# digest of all that went into it.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?usage: native.sh DIR}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
jobs=${PADDOCK_JOBS:-$(nproc)}
mkdir -p "$cache" "$out"
exec 9>"$cache/native.lock"
flock 9
. "$here/lib.sh"

wabt=f258a5cd377afac3361fc1dcb6fb10e813a88ab32c1895eba63fd7422801e9f1
flags="-O2 -w -fno-strict-aliasing -ffp-contract=off"
case $(uname -m) in
x86_64) flags="$flags -DPD_SEGMENT" ;; # the memory's base in %gs
esac

python=$(cat "$cache/out/python/python.path")/python.wasm
javascript=$cache/out/javascript/quickjs.wasm
key=$(cat "$python" "$javascript" "$here"/native/*.go "$here"/instrument/[ir]*.go "$here/../../internal/sandbox/wasm/native/guest.h" |
	{ sha256sum; echo "$wabt $flags $(clang-19 --version | head -n 1) $(uname -m)"; } | sha256sum | cut -c1-16)
dir=$cache/native-$key
if [ ! -d "$dir" ]; then
	begin=$SECONDS
	fetch_source "$wabt" pool/main/w/wabt/wabt_1.0.32-1_amd64.deb -
	work=$cache/native.tmp
	rm -rf "$work" && mkdir -p "$work/c"
	say "native: translating the guests to C"
	(cd "$work" && ar p "$cache/sources/$wabt" data.tar.xz | tar -xJ ./usr/bin/wasm2c ./usr/include/wasm-rt.h)
	(cd "$here/../.." && CGO_ENABLED=0 go build -o "$work/native" ./guest/build/native)
	for guest in python javascript; do
		"$work/native" -strip "${!guest}" "$work/$guest.wasm"
		"$work/usr/bin/wasm2c" -n "$guest" "$work/$guest.wasm" -o "$work/$guest.c"
	done
	"$work/native" -out "$work/c" "$work/python.c" "$work/javascript.c"
	cp "$work/usr/include/wasm-rt.h" "$here/../../internal/sandbox/wasm/native/guest.h" "$work/c/"
	say "native: compiling (some minutes, once)"
	# The largest first; one compiler takes up to 400 MB.
	(cd "$work/c" && ls -S ./*.c | xargs -P "$jobs" -I{} clang-19 $flags -c {} -o {}.o) ||
		die "the translated guests cannot be compiled" "make NATIVE=0 goes on without them"
	for guest in python javascript; do
		# What the units of a guest share is nobody else's.
		(cd "$work/c" && ld -r -o "$guest.o" "$guest"_*.c.o && llvm-objcopy-19 --localize-hidden "$guest.o")
	done
	mkdir "$work/done"
	(cd "$work/c" && ar rcsD "$work/done/libguests.a" python.o javascript.o guests.c.o)
	cp "$work/usr/include/wasm-rt.h" "$work/done/"
	mv -T "$work/done" "$dir"
	rm -rf "$work"
	say "native: done in $((SECONDS - begin)) s"
fi
cp "$dir"/* "$out/"

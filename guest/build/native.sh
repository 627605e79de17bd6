#!/usr/bin/env bash
# Translates the built guests ahead of time: native.sh DIR leaves
# DIR/libguests.a and DIR/wasm-rt.h for the package internal/sandbox/wasm/native,
# and beside DIR built.go, by which Go sees that they are others.
#
# wasm2c comes from Debian's package wabt, pinned by its digest; the compiler is
# the one that built the guests. It compiles with the profiles in native/profile:
# what the programs in native/train use of the guests. native.sh -profile makes
# these profiles again, for which it compiles the guests to count first. The
# clock and all random numbers are the same for these programs each time, so the
# profiles are as well. They fit one translation, whose digest stands beside them.
#
# The result is kept in $PADDOCK_CACHE by the digest of all that went into it.
# PADDOCK_JOBS sets how many compilers run at once.
#
# On two cores of an EPYC the compilation takes 76 s, and at most 0.5 GB for each
# compiler; new profiles take another 115 s. The folder needs 0.4 GB meanwhile,
# 13 MB afterwards.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(realpath -m -- "${1:?usage: native.sh DIR | -profile}")
profiles=$here/native/profile
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
jobs=${PADDOCK_JOBS:-$(nproc)}
mkdir -p "$cache"
exec 9>"$cache/native.lock"
flock 9
. "$here/lib.sh"

. "$here/native/flags.sh"
guests="python javascript"
declare -A wasm=([python]=$(cat "$cache/out/python/python.path")/python.wasm [javascript]=$cache/out/javascript/quickjs.wasm)
declare -A extension=([python]=py [javascript]=js)

# What the guests' C depends on, and then what the library does.
sources() { cat "${wasm[python]}" "${wasm[javascript]}" "$here"/native/*.{go,sh} "$here"/instrument/[ir]*.go "$root/internal/sandbox/wasm/native/guest.h"; }
inputs() {
	cat "$@" "$profiles"/*
	grep -v '^[[:space:]]*#' "$here/native.sh"
	echo "$flags $(clang-19 --version | head -n 1) $(uname -m)"
}
digest() { sha256sum | cut -c1-16; }

# translate: the guests' C into $work/c.
translate() {
	local guest
	fetch_wasm2c "$work"
	(cd "$root" && CGO_ENABLED=0 go build -o "$work/native" ./guest/build/native)
	for guest in $guests; do
		"$work/native" -strip "${wasm[$guest]}" "$work/$guest.wasm"
		"$work/usr/bin/wasm2c" -n "$guest" "$work/$guest.wasm" -o "$work/$guest.c"
	done
	"$work/native" -out "$work/c" "$work/python.c" "$work/javascript.c"
	cp "$work/usr/include/wasm-rt.h" "$root/internal/sandbox/wasm/native/guest.h" "$work/c/"
}

# compile OUT FLAGS...: $work/c into OUT/libguests.a. GUEST in the flags stands
# for the guest's name. The largest unit comes first.
compile() {
	local guest to=$1
	shift
	mkdir "$to"
	(cd "$work/c" && ls -S ./*.c | xargs -P "$jobs" -I{} bash -c 'guest=${1#./} to=$2 && shift 2 && clang-19 "${@//GUEST/${guest%%_*}}" -c "$guest" -o "$to/$guest.o"' - {} "$to" $flags "$@") ||
		die "the translated guests cannot be compiled" "make NATIVE=0 goes on without them"
	for guest in $guests; do
		# What the units of a guest share is nobody else's, but for how it is counted.
		(cd "$to" && ld -r -o "$guest.o" "$guest"_*.c.o && llvm-objcopy-19 --localize-hidden \
			--globalize-symbol=__llvm_profile_raw_version --weaken-symbol=__llvm_profile_raw_version "$guest.o")
	done
	(cd "$to" && ar rcsD libguests.a python.o javascript.o guests.c.o && rm ./*.o && cp "$work/c/wasm-rt.h" .)
}

# train: what the programs use, into native/profile. It links what was compiled
# to count in place of what lies in the package's folder.
train() {
	local guest
	(cd "$root" && CC=clang-19 CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$work/counting" CGO_LDFLAGS="-L$work/counting -fprofile-generate" \
		go test -c -tags 'native profile' -o "$work/train" ./internal/sandbox/wasm/worker)
	for guest in $guests; do
		(cd "$work" && PADDOCK_TRAIN="$here/native/train/*.${extension[$guest]}" PADDOCK_PROFILE="$work/$guest.raw" \
			./train -test.run 'TestTrain$' >"$work/train.log" 2>&1) || {
			cat "$work/train.log" >&2
			die "the training programs did not run to their end" "make NATIVE=0 goes on without the native engine"
		}
		llvm-profdata-19 merge -sparse -o "$profiles/$guest.profile" "$work/$guest.raw"
	done
	digest <<<"$(cat "$work"/c/*)" >"$profiles/fits"
}

# profile: the training, with the C in $work/c.
profile() {
	local begin=$SECONDS
	ls "$(clang-19 -print-file-name="libclang_rt.profile-$(uname -m).a")" >/dev/null 2>&1 || packages "the native engine's profiles" libclang-rt-19-dev
	say "native: compiling the guests to count what is used (two minutes)"
	compile "$work/counting" -fprofile-generate
	say "native: running the training programs, at $((SECONDS - begin)) s"
	train
	say "native: the profiles are in guest/build/native/profile, after $((SECONDS - begin)) s"
}

# build DIR: the library, from the C in $work/c.
build() {
	local begin=$SECONDS
	[ "$(cat "$profiles/fits" 2>/dev/null)" = "$(digest <<<"$(cat "$work"/c/*)")" ] ||
		die "the native engine's profiles were made for other guests" "make profile makes them again, in three minutes; commit what it changes"
	say "native: compiling the guests (a minute or two, once)"
	cp "$profiles"/*.profile "$work/"
	cp "$profiles/python.profile" "$work/guests.c.profile" # their common entries are in it too
	compile "$work/done" "-fprofile-use=$work/GUEST.profile"
	mv -T "$work/done" "$1"
	say "native: done in $((SECONDS - begin)) s"
}

if [ "$1" = -profile ]; then
	work=$cache/native.tmp
	rm -rf "$work" && mkdir -p "$work/c" "$profiles"
	translate
	profile
	rm -rf "$work"
	exit
fi
mkdir -p "$out"

# The same C, of other sources, is the same library.
known=$cache/native-of-$(inputs <(sources) | digest)
dir=$cache/$(cat "$known" 2>/dev/null || echo none)
if [ ! -d "$dir" ]; then
	work=$cache/native.tmp
	rm -rf "$work" && mkdir -p "$work/c"
	say "native: translating the guests to C"
	translate
	dir=$cache/native-$(inputs "$work"/c/* | digest)
	[ -d "$dir" ] || build "$dir"
	echo "${dir##*/}" >"$known"
	rm -rf "$work"
fi
cp "$dir"/* "$out/"
cat >"$out/../built.go" <<END
//go:build native

package native

// Built names what the linked guests were built from.
const Built = "${dir##*-}"
END

#!/usr/bin/env bash
# Builds the guest for data: CPython with numpy linked in.
#
#   data.sh OUT          leaves OUT/data.path, a folder with python.wasm, lib and
#                        licenses as python.sh makes it for the plain guest
#
# guest/build/DATA.md says what of issue 24 is in and what is not. Each stage is kept in
# $PADDOCK_CACHE by the digest of all that went into it. The sources come from PyPI by
# pip, each with its SHA-256 in data/requirements.txt, and from Debian's pool.
set -euo pipefail
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1735689600 ZERO_AR_DATE=1 PYTHONHASHSEED=0
here=$(cd "$(dirname "$0")" && pwd)
data=$here/data
out=$(realpath -m "${1:?usage: data.sh OUT}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
jobs=${PADDOCK_JOBS:-$(nproc)}
mkdir -p "$cache" "$out"
. "$here/lib.sh"
bash "$here/python.sh" "$out"
exec 9>"$cache/data.lock"
flock 9
native=$(cat "$out/native.path")
python=$(cat "$out/python.path")
libraries=$(cat "$cache/libraries.path")
sysroot=$(ls -d "$cache"/sysroot-* | head -n 1)
libcxx=/usr/lib/llvm-19

# Debian's compiled Cython; it works under the native Python of the guest's version.
case $(uname -m) in
x86_64) cython=ca9e41c1f13b3d2b4693034b9ee7660762c78ebe6043f03eef9068cacbfe6c9c cython_for=amd64 ;;
*) die "the guest for data is built on x86-64 only, so far" "make DATA=0 goes on without it" ;;
esac

missing=()
command -v ninja >/dev/null || missing+=(ninja-build)
[ -f $libcxx/lib/wasm32-wasi/libc++.a ] || missing+=(libc++-19-dev-wasm32)
[ -f $libcxx/lib/wasm32-wasi/libc++abi.a ] || missing+=(libc++abi-19-dev-wasm32)
[ ${#missing[@]} = 0 ] || packages "the guest for data" "${missing[@]}"

# fetch NAME: the source distribution of that name, checked by pip, into $work.
fetch() {
	PYTHONPATH=$data/fetch "$native/bin/python3.13" "$native"/lib/python3.13/ensurepip/_bundled/pip-*.whl/pip \
		download -q --require-hashes --no-deps --no-build-isolation --no-binary :all: -d "$work" -r <(grep "^$1==" "$data/requirements.txt") >&2 ||
		die "pip could not fetch $1" "check the network and pip's settings, then run make again"
	mkdir "$work/$1" && tar -xf "$work/$1"-*.tar.gz -C "$work/$1" --strip-components=1
}

optimise='-O2 -mbulk-memory -msign-ext -mnontrapping-fptoint'
emulate='-D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_PROCESS_CLOCKS'

# meson's description of this compiler: $work/cross.ini, and cython3 on the PATH.
describe() {
	local flags
	flags=$(printf "'%s'," $optimise -g0 $emulate "-I$python/parts/include")
	cat >"$work/cross.ini" <<END
[binaries]
c = ['bash', '$data/compile.sh', 'c']
cpp = ['bash', '$data/compile.sh', 'c++']
ar = 'llvm-ar-19'
ranlib = 'llvm-ranlib-19'
strip = 'true'
python = '$native/bin/python3.13'
[host_machine]
system = 'wasi'
cpu_family = 'wasm32'
cpu = 'wasm32'
endian = 'little'
[properties]
longdouble_format = 'IEEE_QUAD_LE'
needs_exe_wrapper = true
[built-in options]
c_args = [$flags]
cpp_args = [$flags '-fexceptions', '-fignore-exceptions']
END
	mkdir -p "$work/bin" "$work/cython"
	fetch_source "$cython" "pool/main/c/cython/cython3_3.0.11+dfsg-2+b1_$cython_for.deb" -
	ar p "$cache/sources/$cython" data.tar.xz | tar -xJ -C "$work/cython"
	printf '#!/bin/sh\nPYTHONPATH=%s exec %s -m cython "$@"\n' "$work/cython/usr/lib/python3/dist-packages" "$native/bin/python3.13" >"$work/bin/cython3"
	chmod +x "$work/bin/cython3"
}

# Their steps are joined by && because a function in a condition goes on after errors.
build_numpy() {
	local meson=$work/numpy/vendored-meson/meson/meson.py
	fetch numpy &&
		# The one change to it: a processor that it knows as Emscripten's only.
		sed -i 's/#elif defined(__EMSCRIPTEN__)/#elif defined(__EMSCRIPTEN__) || defined(__wasm__)/' "$work/numpy/numpy/_core/include/numpy/npy_cpu.h" &&
		cd "$work/numpy" &&
		"$native/bin/python3.13" "$meson" setup "$work/build" --cross-file "$work/cross.ini" --prefix=/usr -Dbuildtype=plain \
			-Dallow-noblas=true -Dblas=none -Dlapack=none -Ddisable-threading=true -Ddisable-optimization=true -Ddisable-highway=true -Ddisable-svml=true &&
		ninja -C "$work/build" -j "$jobs" &&
		"$native/bin/python3.13" "$meson" install -C "$work/build" --no-rebuild --tags runtime,python-runtime --destdir "$work/installed"
}

link() {
	local cc="clang-19 --target=wasm32-wasi --sysroot=$sysroot/usr -ffile-prefix-map=$work=/build -ffile-prefix-map=$python/parts/include=../src/Include" parts=$python/parts
	cd "$work" && "$native/bin/python3.13" "$data/link.py" build modules.c objects &&
		$cc $optimise $emulate -DPADDOCK_DATA -I"$parts/include" -I"$parts/include/internal" -I"$parts/include/internal/mimalloc" -I"$libraries/include" -c "$here/../python/glue.c" -o glue.o &&
		$cc $optimise $emulate -I"$parts/include" -c modules.c -o modules.o &&
		$cc $optimise $emulate -c "$data/exceptions.c" -o exceptions.o &&
		# No -O, as in python.sh. The options are the plain guest's.
		$cc -mexec-model=reactor -Wl,--strip-debug -Wl,--gc-sections -z stack-size=8388608 -Wl,--stack-first -Wl,--initial-memory=33554432 \
		-Wl,--wrap=_Py_dup -Wl,--wrap=Hacl_Hash_SHA1_update_multi -Wl,--wrap=Hacl_Hash_SHA2_sha256_update_nblocks -Wl,--wrap=Hacl_Hash_SHA2_sha512_update_nblocks \
		-Wl,--export=__stack_pointer glue.o modules.o exceptions.o @objects "$parts"/lib/libpython3.13.a "$parts"/lib/libmpdec.a "$parts"/lib/libexpat.a "$parts"/lib/libHacl_Hash_SHA2.a \
		-L"$libraries/lib" -lsqlite3 -lz -lbz2 -llzma -ldl -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks -lm \
		-L$libcxx/lib/wasm32-wasi -lc++ -lc++abi -lc-printscan-long-double -o done/python.wasm
}

key=$({ cat "$here/data.sh" "$data"/*.* "$data"/names/* "$here/../python/glue.c"; echo "$python $(clang++-19 --version | head -n 1)"; } | sha256sum | cut -c1-16)
dir=$cache/data-$key
if [ ! -d "$dir" ]; then
	work=$cache/build-data log=$cache/data.log begin=$SECONDS
	export PADDOCK_SYSROOT=$sysroot PADDOCK_PREFIX=$work PATH=$work/bin:$PATH
	rm -rf "$work" && mkdir -p "$work/done"
	say "data: building (log: $log)"
	if ! (describe && build_numpy && cp -r "$python/lib" "$python/licenses" "$work/done/" &&
		"$native/bin/python3.13" "$data/pure.py" "$work/installed" "$work/done/lib" && cp "$work/numpy/LICENSE.txt" "$work/done/licenses/numpy" && link) >"$log" 2>&1 9>&-; then
		tail -n 30 "$log" >&2
		die "building the guest for data ended with an error" "the whole log is in $log"
	fi
	mv -T "$work/done" "$dir"
	rm -rf "$work"
	say "data: done in $((SECONDS - begin)) s"
fi
echo "$dir" >"$out/data.path"

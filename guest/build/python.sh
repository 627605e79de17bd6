#!/usr/bin/env bash
# Builds the CPython guest for wasm32-wasi from Debian's source packages.
#
#   python.sh OUT        leaves OUT/python.wasm, OUT/lib (the pure part of the
#                        standard library, compiled) and OUT/LICENSES
#
# Every stage is kept in $PADDOCK_CACHE (default: the user's cache folder),
# named by the digest of all that went into it, and appears there whole or not
# at all: an interrupted build goes on where it stopped, a finished one costs
# nothing. PADDOCK_JOBS sets how many compilers run at once.
set -euo pipefail
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1735689600 ZERO_AR_DATE=1 PYTHONHASHSEED=0

here=$(cd "$(dirname "$0")" && pwd)
glue=$here/../python/glue.c
out=$(realpath -m "${1:?usage: python.sh OUT}")
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
jobs=${PADDOCK_JOBS:-$(nproc)}
mkdir -p "$cache"
# One build at a time; a second one waits and then finds the work done.
exec 9>"$cache/lock"
flock 9

. "$here/lib.sh"
digest() { sha256sum | cut -c1-16; }

# stage NAME INPUTS FUNCTION: runs FUNCTION in an empty folder unless a folder
# for these INPUTS is there already; prints where it is.
stage() {
	local name=$1 key dir work log
	key=$(printf '%s' "$2" | digest)
	dir=$cache/$name-$key
	if [ ! -d "$dir" ]; then
		work=$cache/work/$name log=$cache/$name.log
		rm -rf "$work" && mkdir -p "$work"
		say "$name: building (log: $log)"
		local begin=$SECONDS
		if ! (cd "$work" && set -euo pipefail && "$3") >"$log" 2>&1 9>&-; then
			tail -n 30 "$log" >&2
			die "building $name ended with an error" "the whole log is in $log"
		fi
		mv -T "$work" "$dir"
		say "$name: done in $((SECONDS - begin)) s"
	fi
	printf '%s' "$dir"
}

# tools: what compiles, from the distribution's own packages.
tools() {
	local missing=() resource
	command -v clang-19 >/dev/null || missing+=(clang-19)
	command -v wasm-ld-19 >/dev/null || missing+=(lld-19)
	command -v llvm-ar-19 >/dev/null || missing+=(llvm-19)
	resource=$(clang-19 -print-resource-dir 2>/dev/null || true)
	[ -n "$resource" ] && ls "$resource"/lib/wasi/libclang_rt.builtins-wasm32.a >/dev/null 2>&1 || missing+=(libclang-rt-19-dev-wasm32)
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v make >/dev/null || missing+=(make)
	command -v xz >/dev/null || missing+=(xz-utils)
	command -v tclsh >/dev/null || missing+=(tcl)
	command -v curl >/dev/null || missing+=(curl ca-certificates)
	[ ${#missing[@]} -eq 0 ] && return
	packages "the Python guest" "${missing[@]}"
}

# fetch: every source.
fetch() {
	grep -v '^#' "$here/sources.txt" | while read -r sum pool upstream; do fetch_source "$sum" "$pool" "$upstream"; done
}

source_of() { printf '%s/sources/%s' "$cache" "$(awk -v n="$1" 'index($2, n) { print $1 }' "$here/sources.txt")"; }
unpack() { mkdir -p "$2" && tar -xf "$(source_of "$1")" -C "$2" --strip-components=1; }

optimise='-O2 -mbulk-memory -msign-ext -mnontrapping-fptoint'
emulate='-D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_PROCESS_CLOCKS'
compiler() { printf 'clang-19 --target=wasm32-wasi --sysroot=%s/usr -ffile-prefix-map=%s=/build' "$sysroot" "$PWD"; }

build_sysroot() { ar p "$(source_of wasi-libc)" data.tar.xz | tar -xJ; }

# A Python of the same version for this machine: cross-building and compiling
# the standard library need one, and the benchmarks compare against it.
build_native() {
	unpack python3.13_ src
	mkdir build && cd build
	../src/configure --prefix="$cache/native" --disable-test-modules --with-ensurepip=no
	make -j"$jobs"
	cd ..
	# A layout that finds its library beside itself, wherever it is moved.
	mkdir -p bin lib
	mv build/python bin/python3.13
	mv src/Lib lib/python3.13
	built=build/$(cat build/pybuilddir.txt)
	mkdir -p lib/python3.13/lib-dynload
	cp "$built"/_sysconfigdata*.py lib/python3.13/
	cp -L "$built"/*.so lib/python3.13/lib-dynload/
	rm -rf src build lib/python3.13/test
}

build_libraries() {
	local cc f
	export AR=llvm-ar-19 RANLIB=llvm-ranlib-19
	mkdir -p include lib licenses
	unpack zlib_ zlib && unpack bzip2_ bzip2 && unpack xz-utils_ xz && unpack sqlite3_ sqlite3
	cc=$(compiler)
	(cd zlib && for f in adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil; do
		$cc $optimise -DHAVE_UNISTD_H -c $f.c -o $f.o; done && $AR rcs ../lib/libz.a ./*.o && cp zlib.h zconf.h ../include && cp LICENSE ../licenses/zlib)
	(cd bzip2 && for f in blocksort huffman crctable randtable compress decompress bzlib; do
		$cc $optimise -c $f.c -o $f.o; done && $AR rcs ../lib/libbz2.a ./*.o && cp bzlib.h ../include && cp LICENSE ../licenses/bzip2)
	(cd xz && CC="$cc" CFLAGS="$optimise" ./configure --host=wasm32-wasi --prefix=/usr --disable-shared --enable-threads=no \
		--disable-xz --disable-xzdec --disable-lzmadec --disable-lzmainfo --disable-scripts --disable-doc --disable-nls \
		--disable-assembler --disable-sandbox && make -C src/liblzma -j"$jobs" && cp src/liblzma/.libs/liblzma.a ../lib &&
		cp -r src/liblzma/api/lzma.h src/liblzma/api/lzma ../include && cp COPYING.0BSD ../licenses/xz)
	(cd sqlite3 && mkdir amalgam && cd amalgam && ../configure --disable-tcl --disable-readline && make sqlite3.c &&
		$cc $optimise -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_ENABLE_FTS5 \
			-DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_OMIT_WAL -DSQLITE_TEMP_STORE=2 $emulate -c sqlite3.c -o sqlite3.o &&
		$AR rcs ../../lib/libsqlite3.a sqlite3.o && cp sqlite3.h sqlite3ext.h ../../include)
	echo "SQLite is in the public domain: https://sqlite.org/copyright.html" >licenses/sqlite
	rm -rf zlib bzip2 xz sqlite3
}

build_python() {
	local cc
	export AR=llvm-ar-19 RANLIB=llvm-ranlib-19
	unpack python3.13_ src
	mkdir build && cd build
	cc="clang-19 --target=wasm32-wasi --sysroot=$sysroot/usr -ffile-prefix-map=$(dirname "$PWD")=/build"
	CONFIG_SITE=../src/Tools/wasm/config.site-wasm32-wasi py_cv_module__ctypes=n/a py_cv_module__uuid=n/a ac_cv_func_clock_nanosleep=no \
		CC="$cc" CPP="$cc -E" CXX="clang++-19 --target=wasm32-wasi --sysroot=$sysroot/usr" \
		CFLAGS="-g0 -mbulk-memory -msign-ext -mnontrapping-fptoint" CPPFLAGS="-I$libraries/include" LDFLAGS="-L$libraries/lib" \
		ZLIB_CFLAGS="-I$libraries/include" ZLIB_LIBS="-L$libraries/lib -lz" \
		BZIP2_CFLAGS="-I$libraries/include" BZIP2_LIBS="-L$libraries/lib -lbz2" \
		LIBLZMA_CFLAGS="-I$libraries/include" LIBLZMA_LIBS="-L$libraries/lib -llzma" \
		LIBSQLITE3_CFLAGS="-I$libraries/include" LIBSQLITE3_LIBS="-L$libraries/lib -lsqlite3" \
		../src/configure -C --host=wasm32-wasi --build="$(../src/config.guess)" --with-build-python="$native/bin/python3.13" \
		--prefix=/usr/local --disable-test-modules --with-ensurepip=no --without-readline
	printf '*disabled*\n_ctypes\n_uuid\n' >Modules/Setup.local
	# The glue takes the place of HACL's functions for whole blocks, so they may
	# not be inlined there: only what is declared so.
	make Modules/_hacl/libHacl_Hash_SHA2.a CCSHARED=-finline-hint-functions
	make -j"$jobs" libpython3.13.a Modules/_decimal/libmpdec/libmpdec.a Modules/expat/libexpat.a pybuilddir.txt
	# shellcheck disable=SC2086
	$cc $optimise $emulate -I../src/Include -I../src/Include/internal -I../src/Include/internal/mimalloc -I. -I"$libraries/include" -c "$glue" -o glue.o
	# No -O here: with one, clang has wasm-opt rewrite what was linked wherever that is installed.
	$cc -mexec-model=reactor -Wl,--strip-debug -Wl,--gc-sections -z stack-size=8388608 -Wl,--stack-first -Wl,--initial-memory=20971520 \
		-Wl,--wrap=_Py_dup -Wl,--wrap=Hacl_Hash_SHA1_update_multi -Wl,--wrap=Hacl_Hash_SHA2_sha256_update_nblocks -Wl,--wrap=Hacl_Hash_SHA2_sha512_update_nblocks \
		-Wl,--export=__stack_pointer glue.o libpython3.13.a \
		Modules/_decimal/libmpdec/libmpdec.a Modules/expat/libexpat.a Modules/_hacl/libHacl_Hash_SHA2.a \
		-L"$libraries/lib" -lsqlite3 -lz -lbz2 -llzma -ldl -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks -lm -o ../python.wasm
	"$native/bin/python3.13" "$here/stdlib.py" ../src/Lib ../lib . "$(dirname "$PWD")" "$sysroot" "$libraries" "$native"
	cd ..
	mkdir licenses && cp src/LICENSE licenses/python && cp "$libraries"/licenses/* licenses/
	cp "$sysroot"/usr/share/doc/wasi-libc/copyright licenses/wasi-libc 2>/dev/null || true
	mkdir tests && mv src/Lib/test tests/test
	# What the guest for data is linked from, and compiled against.
	mkdir -p parts/lib && cp -r src/Include parts/include && cp build/pyconfig.h parts/include/
	(cd build && cp libpython3.13.a Modules/_decimal/libmpdec/libmpdec.a Modules/expat/libexpat.a Modules/_hacl/libHacl_Hash_SHA2.a ../parts/lib/)
	rm -rf build src
}

tools
fetch
versions=$(clang-19 --version | head -n 1; wasm-ld-19 --version)
sysroot=$(stage sysroot "$(source_of wasi-libc)" build_sysroot)
# Both spend much of their time in programs that use one core, so they go on side by side.
stage libraries "$(cat "$here/sources.txt")$sysroot$versions$optimise$emulate$(declare -f build_libraries compiler unpack)" build_libraries >"$cache/libraries.path" &
native=$(stage native-python "$(source_of python3.13_)$(declare -f build_native)$(gcc --version | head -n 1)" build_native)
wait $!
libraries=$(cat "$cache/libraries.path")
python=$(stage python "$native$libraries$sysroot$versions$optimise$emulate$(declare -f build_python unpack)$(cat "$glue" "$here/stdlib.py")" build_python)
mkdir -p "$out"
printf '%s\n' "$python" >"$out/python.path"
printf '%s\n' "$native" >"$out/native.path"

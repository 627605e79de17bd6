#!/usr/bin/env bash
# The compiler that meson and setuptools are told to use for the guest for data:
#
#   compile.sh c|c++ ARGUMENT...
#
# It compiles for WASI. The guest has no shared libraries, so where one would be
# linked it writes down, as text, what would go into it: an object or an archive a
# line. data.sh links all of them into the interpreter.
#
# PADDOCK_SYSROOT is wasi-libc's, PADDOCK_PREFIX what paths are mapped from.
set -euo pipefail
language=$1
shift
compiler=clang-19
[ "$language" = c ] || compiler=clang++-19
shared= output= compiles=
arguments=()
inputs=()
while [ $# -gt 0 ]; do
	case $1 in
	-shared) shared=1 ;;
	-o) output=$2 arguments+=("$1" "$2") && shift ;;
	-c) compiles=1 arguments+=("$1") ;;
	-fPIC | -fpic | -pthread) ;;        # of no use in a static module
	-Wl,--version) arguments+=("$1") ;; # by which meson knows the linker
	-Wl,*) ;;                           # other linkers' options
	*.o | *.a) inputs+=("$1") arguments+=("$1") ;;
	*) arguments+=("$1") ;;
	esac
	shift
done
if [ -n "$shared" ] && [ -z "$compiles" ]; then
	for input in "${inputs[@]}"; do realpath "$input"; done >"$output"
	exit
fi
# All modules share one name space: names/MODULE.h renames what a module has of its own.
names=$(dirname "$0")/names/$(basename "$(dirname "$output")" | cut -d. -f1).h
[ -z "$compiles" ] || [ ! -f "$names" ] || arguments+=(-include "$names")
standard=()
[ "$language" = c ] || standard=(-nostdinc++ -isystem /usr/lib/llvm-19/include/wasm32-wasi/c++/v1)
exec "$compiler" --target=wasm32-wasi --sysroot="$PADDOCK_SYSROOT/usr" -ffile-prefix-map="$PADDOCK_PREFIX=/build" "${standard[@]}" "${arguments[@]}"

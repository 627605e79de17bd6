#!/usr/bin/env bash
# Builds and runs the benchmarks. Their baselines are the machine's python3 and
# node, for starting, and for CPU time a CPython of the guest's version, which
# the guests' build leaves, and a QuickJS built here from Debian's source.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
. guest/build/lib.sh
for tool in python3 node; do
	command -v "$tool" >/dev/null || die "the benchmarks compare with the machine's $tool" "install it"
done
quickjs=ec81da5b3249ed648dbc7df4a1654988910e66a118d9b71cb63534216efcfbbe
qjs=$cache/qjs-${quickjs:0:16}
if [ ! -x "$qjs" ]; then
	fetch_source "$quickjs" pool/main/q/quickjs/quickjs_2025.04.26.orig.tar.xz -
	say "building a QuickJS for this machine"
	work=$(mktemp -d)
	tar -xf "$cache/sources/$quickjs" -C "$work" --strip-components=1
	make -C "$work" CONFIG_CLANG=y CC=clang-19 HOST_CC=clang-19 AR=ar -j"$(nproc)" qjs >"$cache/qjs.log" 2>&1 || die "QuickJS cannot be built" "see $cache/qjs.log"
	mv "$work/qjs" "$qjs"
	rm -rf "$work"
fi
# The isolation linux needs root here: the images of its tests are built by it.
image=
if [ "$(id -u)" = 0 ]; then image=$(bash tests/image/build.sh)/full; fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # guests may be other users
CGO_ENABLED=0 go build -trimpath -o "$dir/bench" ./tests/bench
# How long a disk takes for a file varies more than what is measured. What
# sessions leave is for the disk, and is measured there (-disk).
if [ -w /dev/shm ]; then export TMPDIR=${TMPDIR:-/dev/shm}; fi
go test -run XXX -bench HTTP -benchtime 4000x ./internal/mcpserver | grep Benchmark
PADDOCK_BIN=$(realpath "${PADDOCK_BIN:-bin/paddock}") go test -run XXX -bench Serve -benchtime 4000x ./tests/service | grep Benchmark
# Calls of other servers' tools from programs, beside the same calls by a client in Go.
PADDOCK_BIN=$(realpath "${PADDOCK_BIN:-bin/paddock}") go test -run XXX -bench Tool -benchtime 20x ./tests/tools | grep Benchmark
go test -run XXX -bench "Flood|Enter" ./internal/limit | grep Benchmark
# What leaves a sandbox: through the proxy alone, by a client in Go, and by programs, beside
# the same requests with nothing between.
go test -run XXX -bench "Latency|Throughput" ./internal/egress/proxy | grep Benchmark
PADDOCK_BIN=$(realpath "${PADDOCK_BIN:-bin/paddock}") go test -run XXX -bench Network -benchtime 5x ./tests/network/joined | grep Benchmark
"$dir/bench" -paddock "${PADDOCK_BIN:-bin/paddock}" -python "$(cat "$cache/out/python/native.path")/bin/python3.13" -qjs "$qjs" -disk "$dir" -image "$image" \
	-cache "$(bin/paddock doctor --json | sed -n 's/.*"cache_dir": *"\([^"]*\)".*/\1/p' | head -n 1)" "$@"

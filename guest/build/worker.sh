#!/usr/bin/env bash
# Builds the worker with the native engine, whose guests native.sh has left in
# internal/sandbox/wasm/native/lib, and packs it for the paddock binary:
# worker.sh DIR leaves DIR/worker.zst and DIR/worker.sha256.
#
# It is static, so that it runs on any Linux of this machine's architecture.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?usage: worker.sh DIR}")
cd "$here/../.."
mkdir -p "$out"
CC=clang-19 CGO_ENABLED=1 go build -trimpath -tags native,netgo,osusergo \
	-ldflags '-s -w -buildid= -linkmode external -extldflags "-static -Wl,--build-id=none"' -o "$out/worker.tmp" ./cmd/paddock-worker
CGO_ENABLED=0 go run ./guest/build/pack -worker "$out/worker.tmp" -out "$out"
rm "$out/worker.tmp"

#!/usr/bin/env bash
# Builds and runs the benchmarks; needs python3 and node as baselines.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in python3 node; do
	command -v "$tool" >/dev/null || { echo "paddock: error: the benchmarks compare with the host's $tool" >&2; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -trimpath -o "$dir/bench" ./tests/bench
"$dir/bench" -paddock "${PADDOCK_BIN:-bin/paddock}" -cache "$(bin/paddock doctor --json | sed -n 's/.*"cache_dir": *"\([^"]*\)".*/\1/p' | head -n 1)" "$@"

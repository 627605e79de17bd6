#!/usr/bin/env bash
# Builds both guests and packs them into DIR: guests.sh DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:?usage: guests.sh DIR}")
export PADDOCK_CACHE=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
work=$PADDOCK_CACHE/out
mkdir -p "$work" "$out"
exec 8>"$PADDOCK_CACHE/out.lock" # one checkout at a time: all of them make these files
flock 8
bash "$here/javascript.sh" "$work/javascript" &
bash "$here/python.sh" "$work/python"
wait $!
native=$(cat "$work/python/native.path")
rm -rf "$work/pip"
"$native/bin/python3.13" -I "$here/pip.py" "$native"/lib/python3.13/ensurepip/_bundled/pip-*.whl "$work/pip"
cd "$here/../.."
go run ./guest/build/pack -python "$(cat "$work/python/python.path")" -pip "$work/pip" -javascript "$work/javascript" -drivers guest/python -out "$out"
touch "$out/stamp"

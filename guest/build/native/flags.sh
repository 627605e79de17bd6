# How translated modules are compiled, and by which wasm2c they are translated:
# what native.sh and tests/engines share; sourced.

flags="-O2 -w -fno-strict-aliasing -ffp-contract=off"
case $(uname -m) in
x86_64)
	wabt=f258a5cd377afac3361fc1dcb6fb10e813a88ab32c1895eba63fd7422801e9f1 wabt_for=amd64
	flags="$flags -DPD_SEGMENT" # the memory's base in %gs
	;;
aarch64) wabt=a2aa1c8b6e413fc34b8070df9256df6d10d82c65f600a01b676fac2851aeee95 wabt_for=arm64 ;;
*) die "the native engine does not know $(uname -m)" "make NATIVE=0 goes on without it" ;;
esac

# fetch_wasm2c DIR: leaves DIR/usr/bin/wasm2c and DIR/usr/include/wasm-rt.h.
fetch_wasm2c() {
	fetch_source "$wabt" "pool/main/w/wabt/wabt_1.0.32-1_$wabt_for.deb" -
	(cd "$1" && ar p "$cache/sources/$wabt" data.tar.xz | tar -xJ ./usr/bin/wasm2c ./usr/include/wasm-rt.h)
}

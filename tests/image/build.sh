#!/usr/bin/env bash
# Builds the images that the tests of isolation "linux" use, from Debian's
# packages, as OCI layouts: small (bash, coreutils, a minimal Python) and full
# (Python with numpy, pandas, matplotlib, pillow and pip, Node, git, a C
# compiler). They are kept in the build cache by the digest of what they are made
# from; nothing is done when they are there. Prints the folder that has both.
#
# The suite is pinned, and apt checks each package against the suite's signature;
# which versions they are stands in packages.txt beside each layout.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PADDOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/paddock-build}
mkdir -p "$cache"
exec 9>"$cache/image.lock"
flock 9
. "$here/../../guest/build/lib.sh"

suite=bookworm
arch=$(go env GOARCH)
small=bash,coreutils,ca-certificates,python3-minimal
full=bash,coreutils,ca-certificates,git,nodejs,python3,python3-matplotlib,python3-numpy,python3-pandas,python3-pil,python3-pip
# What no test looks at, and what large packages bring along: documents, test
# suites, static libraries, C++ and its headers. Without py3compile modules are
# compiled once, at the end, and only those that are there.
leave=(
	'/usr/share/man/*' '/usr/share/locale/*' '/usr/share/doc/*' '/usr/share/info/*' '/usr/share/unicode/*'
	'/usr/lib/python3/dist-packages/*/tests/*' '/usr/lib/python3/dist-packages/sympy/*' '/usr/lib/python3/dist-packages/mpmath/*'
	'/usr/lib/python3/dist-packages/scipy/*' '/usr/lib/python3/dist-packages/pythran/*' /usr/bin/py3compile
	'/usr/include/boost/*' '/usr/include/c++/*' '/usr/lib/gcc/*/cc1plus' '/usr/lib/gcc/*/lto1' '/usr/bin/*-lto-dump-*'
	'/usr/lib/*/openblas-*/*.a' '/usr/lib/python3*/config-*/*.a' '/usr/lib/*-linux-gnu/lib*san.so.*'
)

dir=$cache/image-$({ echo "$arch"; cat "$here/build.sh" "$here"/pack/*.go; } | sha256sum | cut -c1-16)
if [ ! -d "$dir" ]; then
	[ "$(id -u)" = 0 ] || die "building the test images needs root" "run tests/image/build.sh as root, once"
	missing=()
	command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
	[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
	[ ${#missing[@]} = 0 ] || packages "the test images" "${missing[@]}"
fi

# sources: where the machine gets the suite from; nothing: where Debian has it.
sources() {
	apt-get indextargets --format 'deb $(SITE) $(CODENAME) main' 2>/dev/null |
		grep -E " $suite(-security|-updates)? main\$" | sort -u || true
}

# root NAME PACKAGES: the tar of a root file system with those packages.
root() {
	local begin=$SECONDS options=() path list=$dir.tmp/$1.list
	for path in "${leave[@]}"; do options+=("--dpkgopt=path-exclude=$path"); done
	sources >"$list"
	[ -s "$list" ] && options+=("$suite" "$dir.tmp/$1.tar" "$list") || options+=("$suite" "$dir.tmp/$1.tar")
	mmdebstrap --mode=root --variant=essential --architectures="$arch" --include="$2" \
		--aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
		--customize-hook='[ ! -d "$1/usr/lib/python3/dist-packages" ] || chroot "$1" python3 -m compileall -q -j 0 /usr/lib/python3/dist-packages || :' \
		--customize-hook='dpkg-query --admindir="$1/var/lib/dpkg" -W >'"'$dir.tmp/$1.packages'" \
		"${options[@]}" >"$cache/image-$1.log" 2>&1 9>&- || return 1
	say "the $1 test image: Debian's packages took $((SECONDS - begin)) s"
}

if [ ! -d "$dir" ]; then
	say "building the test images from Debian's packages (logs: $cache/image-*.log)"
	rm -rf "$dir.tmp" && mkdir -p "$dir.tmp"
	root small "$small" &
	root full "$full" || die "the full test image could not be built" "see $cache/image-full.log"
	wait $! || die "the small test image could not be built" "see $cache/image-small.log"
	begin=$SECONDS
	(cd "$here/../.." && go run ./tests/image/pack -out "$dir.tmp/small" -root "$dir.tmp/small.tar" -layers 1 &&
		go run ./tests/image/pack -out "$dir.tmp/full" -root "$dir.tmp/full.tar") >&2 9>&- || die "the test images could not be packed"
	for name in small full; do mv "$dir.tmp/$name.packages" "$dir.tmp/$name/packages.txt"; done
	rm -f "$dir.tmp"/*.tar "$dir.tmp"/*.list
	say "the test images: packing took $((SECONDS - begin)) s"
	rm -rf "$cache"/image-*[0-9a-f] # of earlier versions
	mv -T "$dir.tmp" "$dir"
fi
echo "$dir"

# What the scripts that fetch and build share; sourced with $cache set.

say() { printf 'paddock: %s\n' "$*" >&2; }
die() { printf 'paddock: error: %s\n' "$1" >&2; [ $# -gt 1 ] && printf 'paddock: hint: %s\n' "$2" >&2; exit 1; }

# packages WHAT NAME...: installs packages of the distribution, for WHAT.
packages() {
	local what=$1 sudo=
	shift
	command -v apt-get >/dev/null || die "$what needs $*" "install them with your system's package manager, then run make again"
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || die "$what needs the packages $*" "run as root, once: apt-get install $*"
		sudo=sudo
	fi
	say "installing $* with apt"
	(
		flock 7 # apt works for one at a time
		$sudo apt-get update -qq >&2
		DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >"$cache/apt.log" 2>&1
	) 7>"$cache/apt.lock" || die "apt could not install $*" "see $cache/apt.log"
}

# node_packages DIR FROM WHAT: has npm install what FROM/package-lock.json pins
# into DIR/node_modules, for WHAT, unless DIR is there. npm's registry is the
# one that this machine is set up with.
node_packages() {
	[ -d "$1" ] && return
	command -v npm >/dev/null || packages "$3" nodejs npm
	say "fetching the packages from npm for $3"
	rm -rf "$1.tmp" && mkdir -p "$1.tmp"
	cp "$2/package.json" "$2/package-lock.json" "$1.tmp/"
	(cd "$1.tmp" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error 9>&- >&2) ||
		die "npm could not fetch the packages for $3" "check the network and npm's settings, then run make again"
	mv -T "$1.tmp" "$1"
}

# mirrors: the Debian mirrors this machine is set up with.
mirrors() {
	apt-get indextargets --format '$(SITE)' 2>/dev/null | sort -u | grep -v -e '-security$' || true
}

# fetch_source SUM POOL UPSTREAM: a file of that digest into $cache/sources,
# from the machine's own mirror or else from where upstream publishes the same
# bytes (- for nowhere).
fetch_source() {
	local file=$cache/sources/$1 url
	[ -f "$file" ] && return
	mkdir -p "$cache/sources"
	say "fetching ${2##*/}"
	for url in $(mirrors | sed "s|\$|/${2//+/%2b}|") "$3"; do
		[ "$url" = - ] && continue
		curl -fsSL --retry 3 --connect-timeout 20 -o "$file.part" "$url" || continue
		echo "$1  $file.part" | sha256sum -c --quiet - >/dev/null 2>&1 && mv "$file.part" "$file" && break
		say "$url does not have the expected content"
	done
	rm -f "$file.part"
	[ -f "$file" ] || die "could not fetch ${2##*/}" "it is needed once; check the network, then run make again"
}

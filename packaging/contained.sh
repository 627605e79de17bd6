#!/usr/bin/env bash
# contained.sh PADDOCK ARGS...: runs the binary the way the image does under
# --read-only --cap-drop=ALL --security-opt=no-new-privileges: in a root that
# holds nothing else, as user 65532, with /state and /cache alone writable.
# PADDOCK may be a folder: the content of the image, which has the binary.
# Wants root, to make that root; no container engine.
set -euo pipefail
binary=$(realpath "$1")
shift
root=$(mktemp -d)
exec unshare --mount --pid --fork --kill-child --propagation private bash -euc '
	root=$1 binary=$2
	shift 2
	trap "umount -l $root; rmdir $root" EXIT
	mount -t tmpfs -o mode=0755 tmpfs "$root"
	if [ -d "$binary" ]; then
		cp -a "$binary/." "$root"
	else
		install -m 755 "$binary" "$root/paddock"
	fi
	mkdir -p "$root"/{proc,dev,state,cache}
	for device in null zero full random urandom; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
	mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
	for folder in state cache; do
		mount -t tmpfs -o nosuid,nodev,uid=65532,gid=65532,mode=0700 tmpfs "$root/$folder"
	done
	mount -o remount,ro,bind "$root"
	setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid --inh-caps=-all \
		env -i PADDOCK_STATE_DIR=/state PADDOCK_CACHE_DIR=/cache \
		"$(command -v chroot)" --userspec=65532:65532 --groups= "$root" /paddock "$@"
' bash "$root" "$binary" "$@"

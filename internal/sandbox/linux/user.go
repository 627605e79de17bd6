//go:build linux && (amd64 || arm64)

package linux

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A machine has one user, by its number. What it is called, where its home is and that sudo
// runs for it is all that a sandbox.Spec's User changes.

var userPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

func homeOf(user string) string { return path.Join("/home", user) }

// withUser makes the guests' entry of a list of users that of one with this name; empty: it
// stays.
func withUser(list, user string) string {
	id := strconv.Itoa(guestID)
	return replaceEntry(list, user, user+":x:"+id+":"+id+":"+user+":"+homeOf(user)+":/bin/bash")
}

// withGroup is withUser for a list of groups.
func withGroup(list, user string) string {
	return replaceEntry(list, user, user+":x:"+strconv.Itoa(guestID)+":")
}

// replaceEntry puts an entry in the place of those of its name or of the guests' number.
func replaceEntry(list, user, entry string) string {
	if user == "" {
		return list
	}
	var kept strings.Builder
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if f[0] != user && (len(f) < 3 || f[2] != strconv.Itoa(guestID)) {
			kept.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return kept.String() + entry + "\n"
}

// sudo runs its arguments: a machine has no other user.
const sudo = `#!/bin/sh
# This machine has one user. sudo runs its arguments as that user.
while [ $# -gt 0 ]; do
	case "$1" in
	-[ughpCrtUTD]) shift 2 || exit 1 ;;
	--) shift; break ;;
	-*) shift ;;
	*=*) export "$1"; shift ;;
	*) break ;;
	esac
done
[ $# -gt 0 ] || exec /bin/sh
exec "$@"
`

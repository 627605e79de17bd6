package mcpserver

import (
	"slices"
	"strings"

	"paddock/internal/session"
)

// crowded are folders whose files programs keep for themselves: by the hundred, and
// of interest to nobody one by one.
var crowded = []string{".git", "node_modules", "__pycache__", "site-packages", ".venv"}

// few is how many changes in such a folder are listed one by one.
const few = 3

// fold lists changes, those in each crowded folder as one.
func fold(all []session.Change) []Change {
	within := map[string]int{}
	for _, c := range all {
		within[crowd(c.Path)]++
	}
	list := make([]Change, 0, len(all))
	at := map[string]int{}
	for _, c := range all {
		dir := crowd(c.Path)
		if dir == "" || within[dir] <= few {
			list = append(list, Change{Path: c.Path, Change: c.Change, Size: c.Size})
			continue
		}
		k, ok := at[dir]
		if !ok {
			k = len(list)
			at[dir] = k
			list = append(list, Change{Path: dir, Change: c.Change})
		}
		one := &list[k]
		one.Files++
		one.Size += c.Size
		if one.Change != c.Change {
			one.Change = "modified"
		}
	}
	return list
}

// crowd is the crowded folder that a path is in, with a slash at its end; empty: none.
func crowd(path string) string {
	n := 0
	for part, rest, more := strings.Cut(path, "/"); more; part, rest, more = strings.Cut(rest, "/") {
		n += len(part) + 1
		if slices.Contains(crowded, part) {
			return path[:n]
		}
	}
	return ""
}

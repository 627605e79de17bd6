package workspace

import (
	"io/fs"
	"slices"
	"strings"
)

// stamp is what tells that a file changed without reading it.
type stamp struct {
	size           int64
	modified, meta int64 // nanoseconds: of the content, of the file's own data
	inode          uint64
}

// Snapshot is what the regular files of a tree looked like at one moment. The
// zero Snapshot is that of an empty tree.
type Snapshot struct {
	files map[string]stamp
	more  bool // there were more than MaxFiles
}

// How a file can change.
const (
	Added    = "added"
	Modified = "modified"
	Removed  = "removed"
)

// Change is one file that differs between two snapshots.
type Change struct {
	Path   string
	Change string // Added, Modified or Removed
	Size   int64  // zero when it was removed
}

// Snapshot takes one. It costs a system call for each file and reads none.
// Of a tree with more than MaxFiles files it holds the first.
func (t *Tree) Snapshot() (Snapshot, error) {
	s := Snapshot{files: map[string]stamp{}}
	sum := int64(0)
	left, err := t.walk(func(p string, info fs.FileInfo) error {
		sum = add(sum, weight(info))
		if !info.Mode().IsRegular() || hidden(p) {
			return nil
		}
		if len(s.files) == MaxFiles {
			s.more = true
			return fs.SkipAll
		}
		s.files[p] = stampOf(info)
		return nil
	})
	switch {
	case err == nil && (s.more || left):
		_, err = t.DiskBytes()
	case err == nil:
		t.measuredAs(sum)
	}
	return s, err
}

// Changes tells what became of the files from s to after, sorted by path.
// When either holds only the first of too many files, what one of them lacks
// may be beyond its end: only modifications are told then.
func (s Snapshot) Changes(after Snapshot) []Change {
	var changes []Change
	whole := !s.more && !after.more
	for p, now := range after.files {
		was, there := s.files[p]
		switch {
		case there && was != now:
			changes = append(changes, Change{Path: p, Change: Modified, Size: now.size})
		case !there && whole:
			changes = append(changes, Change{Path: p, Change: Added, Size: now.size})
		}
	}
	for p := range s.files {
		if _, there := after.files[p]; !there && whole {
			changes = append(changes, Change{Path: p, Change: Removed})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

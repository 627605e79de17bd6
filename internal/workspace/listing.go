package workspace

import (
	"cmp"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"paddock/internal/blob"
)

// Listing is all that a tree held at one moment, for a checkpoint: the regular
// files, each with what refers to its content, the folders and the links. FIFOs,
// sockets and devices are not in it, and neither are files that are being
// written through the Tree. It is not changed once it was given out; nil is the
// listing of an empty tree.
type Listing struct {
	// boot names the run of the operating system that the stamps are of. What
	// was written before a power cut may be lost although its stamp is not.
	boot    string
	entries []entry // folders before what is in them, the names of each in order
}

// kind is what an entry is.
type kind uint8

const (
	isFile kind = iota
	isFolder
	isLink
)

// entry is one file, folder or link of a listing.
type entry struct {
	name string
	end  int // the index after the last entry below it
	kind kind
	mode fs.FileMode // permission bits; none of a link

	// racy tells that it may change without its stamp changing: it was looked at
	// too soon after its last change.
	racy bool
	// unknown tells that a file could not be read, or that a folder's content
	// could not be listed.
	unknown bool

	stamp  stamp    // of a folder only its time of modification counts
	ref    blob.Ref // of a file
	target string   // of a link
}

// branch are the entries of one folder that were not looked at yet.
type branch struct {
	all     []entry
	at, end int
}

func (l *Listing) top() branch {
	if l == nil {
		return branch{}
	}
	return branch{l.entries, 0, len(l.entries)}
}

// first gives the next entry and what is below it; nil at the end.
func (b *branch) first() (*entry, branch) {
	if b.at >= b.end {
		return nil, branch{}
	}
	e := &b.all[b.at]
	return e, branch{b.all, b.at + 1, e.end}
}

func (b *branch) skip() { b.at = b.all[b.at].end }

// find gives the entry of a name, and what is below it. Names have to be asked
// for in ascending order.
func (b *branch) find(name string) (*entry, branch) {
	for e, below := b.first(); e != nil && e.name <= name; e, below = b.first() {
		b.skip()
		if e.name == name {
			return e, below
		}
	}
	return nil, branch{}
}

// join puts a name behind the path of its folder, which is empty for the tree's.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Refs gives what refers to the contents of the files, in the order of their
// paths; the same content may come more than once.
func (l *Listing) Refs() iter.Seq[blob.Ref] {
	return func(yield func(blob.Ref) bool) {
		for k := range l.top().all {
			if e := &l.entries[k]; e.kind == isFile && !e.unknown && !yield(e.ref) {
				return
			}
		}
	}
}

// Same tells whether two listings are of trees that nobody can tell apart by
// their files, folders and links; the times of folders do not count.
func (l *Listing) Same(o *Listing) bool {
	a, b := l.top().all, o.top().all
	return slices.EqualFunc(a, b, func(x, y entry) bool {
		return x.name == y.name && x.end == y.end && x.kind == y.kind && x.mode == y.mode && x.target == y.target &&
			(x.kind != isFile || !fileDiffers(&x, &y))
	})
}

// fileDiffers tells whether a file was modified.
func fileDiffers(a, b *entry) bool {
	if a.unknown || b.unknown {
		return a.unknown != b.unknown || a.stamp != b.stamp || a.mode != b.mode
	}
	return a.ref.Digest != b.ref.Digest || a.ref.Size != b.ref.Size || a.mode != b.mode || a.stamp.modified != b.stamp.modified
}

// Changes tells what became of the regular files from l to after, sorted by
// path: Modified is one with another content, mode or time. There are MaxFiles
// at most.
func (l *Listing) Changes(after *Listing) []Change {
	var d diff
	d.folder("", l.top(), after.top())
	return d.sorted()
}

// diff collects changes.
type diff struct{ changes []Change }

func (d *diff) folder(dir string, before, after branch) {
	for len(d.changes) < MaxFiles {
		was, wasBelow := before.first()
		is, isBelow := after.first()
		switch {
		case was == nil && is == nil:
			return
		case is == nil || was != nil && was.name < is.name:
			is, isBelow = nil, branch{}
			before.skip()
		case was == nil || is.name < was.name:
			was, wasBelow = nil, branch{}
			after.skip()
		default:
			before.skip()
			after.skip()
		}
		d.entry(dir, was, is)
		if wasBelow.at < wasBelow.end || isBelow.at < isBelow.end {
			d.folder(join(dir, cmp.Or(was, is).name), wasBelow, isBelow)
		}
	}
}

// entry compares what has one name in a folder; nil: nothing has.
func (d *diff) entry(dir string, was, is *entry) {
	wasFile := was != nil && was.kind == isFile
	nowFile := is != nil && is.kind == isFile
	switch {
	case wasFile && nowFile && fileDiffers(was, is):
		d.add(join(dir, is.name), Modified, is.ref.Size)
	case wasFile && !nowFile:
		d.add(join(dir, was.name), Removed, 0)
	case nowFile && !wasFile:
		d.add(join(dir, is.name), Added, is.ref.Size)
	}
}

func (d *diff) add(p, change string, size int64) {
	if len(d.changes) < MaxFiles && len(p) <= maxPath { // nobody can use a longer one
		d.changes = append(d.changes, Change{Path: p, Change: change, Size: size})
	}
}

func (d *diff) sorted() []Change {
	slices.SortFunc(d.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return d.changes
}

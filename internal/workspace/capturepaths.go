package workspace

import (
	"os"
	"path"
	"slices"
	"strings"

	"paddock/internal/fault"
)

// CapturePaths brings a listing of this tree up to date at some paths alone, as
// [Tree.Options].Keep gives them: files, folders with all below them, or what
// is gone; what else has changed is as it was before. The folders above are
// listed as they are now. See [Tree.Capture]; without a listing that is good
// here it does the same.
func (t *Tree) CapturePaths(before *Listing, paths []string, put PutFunc) (*Listing, []Change, error) {
	c := newCapture(t, before, put)
	if !c.trusted {
		return t.Capture(before, put)
	}
	split := make([][]string, 0, len(paths))
	for _, p := range paths {
		for part := range strings.SplitSeq(p, "/") {
			if !goodName(part) && !strings.HasPrefix(part, tempPrefix) || strings.ContainsRune(part, 0) {
				return nil, nil, fault.New(fault.Invalid, "%q names no file of a workspace", p)
			}
		}
		split = append(split, strings.Split(t.resolve(p), "/"))
	}
	slices.SortFunc(split, slices.Compare)
	if err := c.some(t.root(), "", 0, before.top(), split); err != nil {
		return nil, nil, err
	}
	after := &Listing{boot: thisBoot(), entries: c.entries}
	return after, before.Changes(after), nil
}

// some lists in a folder what is at the paths, which are sorted, and copies the
// rest. A path is what is left of it below this folder.
func (c *capture) some(dir *os.Root, prefix string, depth int, before branch, paths [][]string) error {
	for len(paths) > 0 {
		name := paths[0][0]
		n := 1
		for n < len(paths) && paths[n][0] == name {
			n++
		}
		mine := paths[:n]
		paths = paths[n:]
		for e, _ := before.first(); e != nil && e.name < name; e, _ = before.first() {
			c.copyBranch(&before)
		}
		old, below := before.find(name)
		if err := c.at(dir, prefix, name, depth, old, below, mine); err != nil {
			return err
		}
	}
	for before.at < before.end {
		c.copyBranch(&before)
	}
	return nil
}

// at lists a name to which some paths lead, or through which they do.
func (c *capture) at(dir *os.Root, prefix, name string, depth int, old *entry, below branch, paths [][]string) error {
	if len(paths[0]) == 1 { // the shortest comes first
		return c.entry(dir, prefix, name, depth, old, below)
	}
	info, err := dir.Lstat(name)
	if err != nil || !info.IsDir() || depth == maxDepth || strings.HasPrefix(name, tempPrefix) {
		return c.entry(dir, prefix, name, depth, old, below)
	}
	sub, done, err := openFolder(dir, name, info, 0o500)
	if err != nil {
		return c.entry(dir, prefix, name, depth, old, below)
	}
	defer done()
	at := len(c.entries)
	c.add(entry{name: name, kind: isFolder, mode: info.Mode().Perm(), stamp: stamp{modified: stampOf(info).modified}})
	rest := make([][]string, len(paths))
	for k, p := range paths {
		rest[k] = p[1:]
	}
	if err := c.some(sub, join(prefix, name), depth+1, below, rest); err != nil {
		return err
	}
	c.entries[at].end = len(c.entries)
	return nil
}

// copyBranch takes an entry over with what is below it.
func (c *capture) copyBranch(from *branch) {
	shift := len(c.entries) - from.at
	end := from.all[from.at].end
	for k := from.at; k < end; k++ {
		e := from.all[k]
		e.end += shift
		c.entries = append(c.entries, e)
	}
	from.at = end
}

// maxLinks bounds the links on the way to a file.
const maxLinks = 40

// resolve follows the links above a path, as a write to it does, and gives the
// path without them. Where they do not lead to a folder of the tree, it gives
// as much as can be followed.
func (t *Tree) resolve(p string) string {
	rest, done, link, links := strings.Split(p, "/"), "", "", 0
	at := descent{root: t.root()}
	defer at.close()
	for len(rest) > 1 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done == "" {
				return link
			}
			done = strings.TrimPrefix(path.Dir("/"+done), "/")
			at.to(done)
			continue
		}
		next := join(done, part)
		target, isLink := at.readlink(part)
		if !isLink {
			done = next
			at.down(part)
			continue
		}
		if links++; links > maxLinks || strings.HasPrefix(target, "/") {
			return next
		}
		link = next
		rest = append(strings.Split(target, "/"), rest...)
	}
	return join(done, rest[0])
}

// descent is a place in a tree that is gone down to step by step: a lookup from the top
// costs a step for each folder on the way.
type descent struct {
	root *os.Root
	sub  *os.Root // where it is; nil: at the root, or lost
	lost bool     // there is no such folder
}

func (d *descent) here() *os.Root {
	if d.sub != nil {
		return d.sub
	}
	return d.root
}

func (d *descent) readlink(name string) (target string, ok bool) {
	if d.lost {
		return "", false
	}
	target, err := d.here().Readlink(name)
	return target, err == nil
}

// down goes into a folder, which is not a link.
func (d *descent) down(name string) {
	if d.lost {
		return
	}
	next, err := d.here().OpenRoot(name)
	d.close()
	d.sub, d.lost = next, err != nil
}

// to begins again at a folder of the tree; "": at its top.
func (d *descent) to(p string) {
	d.close()
	if d.lost = false; p != "" {
		d.down(p)
	}
}

func (d *descent) close() {
	if d.sub != nil {
		_ = d.sub.Close()
		d.sub = nil
	}
}

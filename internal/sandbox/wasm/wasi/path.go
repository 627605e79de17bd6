package wasi

import (
	"path"
	"strings"
)

// follow is the lookup flag: a link at the end of a path is followed.
const follow = 1

// The flags of path_open.
const (
	openCreate = 1 << iota
	openFolder
	openExclusive
	openTruncate
	openAll = 1<<iota - 1
)

func pathOpen(c *call) errno {
	fd := c.u32At(8)
	lookup, oflags, flags := c.u32(1), c.u32(4), c.u32(7)
	switch {
	case fd == nil:
		return efault
	case lookup > follow || oflags > openAll || flags > flagsAll:
		return einval
	}
	p, e := c.at(c.u32(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	free, e := c.free()
	if e != success {
		return e
	}
	how := opening{
		read: c.u64(5)&rightRead != 0, write: c.u64(5)&rightsWrite != 0,
		create: oflags&openCreate != 0, exclusive: oflags&openExclusive != 0, truncate: oflags&openTruncate != 0,
		folder: oflags&openFolder != 0, noFollow: lookup&follow == 0,
	}
	if how.folder {
		how.write = false // all rights are asked for folders, where these mean nothing
	}
	d, e := c.open(p, how, uint16(flags))
	if e != success {
		return e
	}
	c.table[free] = d
	fd.put(free)
	return success
}

func pathFilestatGet(c *call) errno {
	b := c.slice(c.u32(4), statSize)
	switch {
	case b == nil:
		return efault
	case c.u32(1) > follow:
		return einval
	}
	p, e := c.at(c.u32(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	s, e := c.statAt(p, c.u32(1) == follow)
	if e == success {
		s.put(b)
	}
	return e
}

func pathFilestatSetTimes(c *call) errno {
	a, m, e := moments(c.u64(4), c.u64(5), c.u32(6))
	switch {
	case e != success:
		return e
	case c.u32(1) > follow:
		return einval
	}
	p, e := c.at(c.u32(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	s, e := c.statAt(p, c.u32(1) == follow)
	switch {
	case e != success:
		return e
	case p.dir == nil:
		return erofs
	case s.kind == typeSymlink:
		return enotsup // the host would follow it
	}
	return p.dir.setTimes(p.name, a, m)
}

// refusal is why nothing can be made at p, where nothing can be changed.
func (p place) refusal() errno {
	_, e := p.tree.stat(p.name, false)
	switch e {
	case success:
		return eexist
	case enoent:
		return erofs
	}
	return e
}

func pathCreateDirectory(c *call) errno {
	p, e := c.at(c.u32(0), c.u32(1), c.u32(2))
	switch {
	case e != success:
		return e
	case p.dir == nil:
		return p.refusal()
	}
	return p.dir.mkdir(p.name)
}

// newAt is at for what is going to be made and is not a folder.
func (c *call) newAt(fd, address, length uint32) (place, errno) {
	p, e := c.at(fd, address, length)
	switch {
	case e != success:
		return p, e
	case p.dir == nil:
		return p, p.refusal()
	case p.folder:
		return p, enoent
	}
	return p, success
}

func pathLink(c *call) errno {
	if c.u32(1) > follow {
		return einval
	}
	from, e := c.at(c.u32(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	s, e := c.statAt(from, false)
	if e != success {
		return e
	}
	to, e := c.newAt(c.u32(4), c.u32(5), c.u32(6))
	switch {
	case e != success:
		return e
	case from.tree != to.tree:
		return exdev
	case s.kind == typeSymlink && c.u32(1) == follow:
		return enotsup // the host would link the link
	}
	return to.dir.link(from.name, to.name)
}

func pathReadlink(c *call) errno {
	room, n := c.slice(c.u32(3), c.u32(4)), c.u32At(5)
	if room == nil || n == nil {
		return efault
	}
	p, e := c.at(c.u32(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	target, e := p.tree.readlink(p.name)
	if e == success {
		n.put(copy(room, target))
	}
	return e
}

func pathRemoveDirectory(c *call) errno {
	p, e := c.at(c.u32(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	return c.remove(p, true)
}

func pathUnlinkFile(c *call) errno {
	p, e := c.at(c.u32(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	return c.remove(p, false)
}

func (c *call) remove(p place, folder bool) errno {
	if p.folder || p.dir == nil {
		s, e := c.statAt(p, false)
		switch {
		case e != success:
			return e
		case !folder && s.kind == typeFolder:
			return eisdir
		case p.dir == nil:
			return erofs
		}
	}
	return p.dir.remove(p.name, folder)
}

func pathRename(c *call) errno {
	from, e := c.at(c.u32(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	to, e := c.at(c.u32(3), c.u32(4), c.u32(5))
	if e != success {
		return e
	}
	if from.dir == nil || from.dir != to.dir || from.folder || to.folder {
		if e := c.renames(from, to); e != success {
			return e
		}
	}
	e = from.dir.rename(from.name, to.name)
	if e == success {
		c.moved(from, to)
	}
	return e
}

// renames tells whether from may become to by what is not asked when both are
// plain names in one [Dir].
func (c *call) renames(from, to place) errno {
	s, e := c.statAt(from, false)
	switch {
	case e != success:
		return e
	case from.dir == nil || to.dir == nil:
		return erofs
	case from.dir != to.dir:
		return exdev
	case to.folder && s.kind != typeFolder:
		return enotdir
	}
	return success
}

// pathSymlink makes a link. An absolute target is meant as the guest sees the
// files, so it becomes a relative one, which is the same wherever the folder
// lies; it has to lead into the link's own tree. A relative target is kept as
// it is: one that leads out of the tree can be made, but not followed.
func pathSymlink(c *call) errno {
	given, e := c.text(c.u32(0), c.u32(1))
	if e != success {
		return e
	}
	p, e := c.newAt(c.u32(2), c.u32(3), c.u32(4))
	if e != success {
		return e
	}
	target := string(given)
	if path.IsAbs(target) {
		clean, _, e := join(nil, "/", given)
		if e != success {
			return e
		}
		to := c.space.find(string(clean))
		if to.tree != p.tree {
			return eperm
		}
		target = path.Join(strings.Repeat("../", strings.Count(p.name, "/")), to.name)
	}
	if !validTarget(target) {
		return einval
	}
	return p.dir.symlink(target, p.name)
}

// validTarget tells whether every part of a relative target is a name here.
func validTarget(target string) bool {
	for part := range strings.SplitSeq(target, "/") {
		if part != "" && part != "." && part != ".." && !validName([]byte(part)) {
			return false
		}
	}
	return true
}

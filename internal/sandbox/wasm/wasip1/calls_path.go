package wasi

import (
	"path"
	"strings"
	"time"
)

const follow = 1 // the flag that a link at the end of a path is followed

func pathOpen(c *call) errno {
	p, e := c.at(c.fd(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	how := opening{
		read: c.u64(5)&rightRead != 0, write: c.u64(5)&rightWrite != 0, append: c.u32(7)&fdAppend != 0,
		create: c.u32(4)&oCreate != 0, exclusive: c.u32(4)&oExclusive != 0, trunc: c.u32(4)&oTruncate != 0,
		folder: c.u32(4)&oDirectory != 0, noFollow: c.u32(1)&follow == 0,
	}
	if how.folder {
		how.write = false // all rights are asked for a folder, and mean nothing
	}
	if c.bytes(c.u32(8), 4) == nil {
		return efault
	}
	d, e := c.open(p, how)
	if e != success {
		return e
	}
	fd, e := c.insert(d)
	if e == success {
		c.put32(c.u32(8), fd)
	}
	return e
}

func pathFilestat(c *call) errno {
	p, e := c.at(c.fd(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	s, e := c.statAt(p, c.u32(1)&follow != 0)
	if e == success {
		c.putStat(c.u32(4), s)
	}
	return e
}

// changeable is the folder in which p may be changed.
func changeable(p place) (*Dir, errno) {
	switch {
	case p.virtual || p.mount == nil:
		return nil, eperm
	case p.mount.Archive != nil || p.mount.Dir.readOnly:
		return nil, erofs
	}
	return p.mount.Dir, success
}

// inside is changeable for what is not a mount itself.
func inside(p place) (*Dir, errno) {
	d, e := changeable(p)
	if e == success && p.rel == "." {
		return nil, eperm
	}
	return d, e
}

func pathMkdir(c *call) errno {
	p, e := c.at(c.fd(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	if _, e := c.statAt(p, false); e == success {
		return eexist
	}
	d, e := inside(p)
	if e != success {
		return e
	}
	return errnoOf(d.make(func() error { return d.root.Mkdir(p.rel, 0o777) }))
}

func pathSetTimes(c *call) errno {
	p, e := c.at(c.fd(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	return c.setTimes(p, c.u64(4), c.u64(5), c.u32(6), c.u32(1)&follow != 0)
}

func (s *System) setTimes(p place, accessed, modified uint64, flags uint32, following bool) errno {
	a, m, e := moments(accessed, modified, flags)
	if e != success {
		return e
	}
	d, e := changeable(p)
	if e != success {
		return e
	}
	now, e := s.statAt(p, following)
	if e != success {
		return e
	}
	if now.kind == typeSymlink {
		return enotsup
	}
	if a == nil {
		t := time.Unix(0, now.accessed)
		a = &t
	}
	if m == nil {
		t := time.Unix(0, now.modified)
		m = &t
	}
	return errnoOf(d.root.Chtimes(p.rel, *a, *m))
}

func pathLink(c *call) errno {
	from, e := c.at(c.fd(0), c.u32(2), c.u32(3))
	if e != success {
		return e
	}
	to, e := c.at(c.fd(4), c.u32(5), c.u32(6))
	if e != success {
		return e
	}
	d, e := inside(to)
	if e != success {
		return e
	}
	if from.mount != to.mount {
		return exdev
	}
	return errnoOf(d.make(func() error { return d.root.Link(from.rel, to.rel) }))
}

func pathReadlink(c *call) errno {
	p, e := c.at(c.fd(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	if p.mount == nil || p.mount.Dir == nil {
		if _, e := c.statAt(p, false); e != success {
			return e
		}
		return einval
	}
	target, err := p.mount.Dir.root.Readlink(p.rel)
	if err != nil {
		return errnoOf(err)
	}
	c.put32(c.u32(5), uint32(copy(c.bytes(c.u32(3), c.u32(4)), target)))
	return success
}

func pathRmdir(c *call) errno {
	return c.remove(func(s stat) errno {
		if s.kind != typeFolder {
			return enotdir
		}
		return success
	})
}

func pathUnlink(c *call) errno {
	return c.remove(func(s stat) errno {
		if s.kind == typeFolder {
			return eisdir
		}
		return success
	})
}

func (c *call) remove(fits func(stat) errno) errno {
	p, e := c.at(c.fd(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	s, e := c.statAt(p, false)
	if e != success {
		return e
	}
	if e := fits(s); e != success {
		return e
	}
	d, e := inside(p)
	if e != success {
		return e
	}
	defer d.gone()
	return errnoOf(d.root.Remove(p.rel))
}

func pathRename(c *call) errno {
	from, e := c.at(c.fd(0), c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	to, e := c.at(c.fd(3), c.u32(4), c.u32(5))
	if e != success {
		return e
	}
	if _, e := c.statAt(from, false); e != success {
		return e
	}
	d, e := inside(from)
	if e != success {
		return e
	}
	if _, e := inside(to); e != success {
		return e
	}
	if from.mount != to.mount {
		return exdev
	}
	defer d.gone()
	return errnoOf(d.root.Rename(from.rel, to.rel))
}

// pathSymlink makes a link. A target that is absolute is taken as the guest
// means it, and made relative; one outside of the link's own mount is refused.
func pathSymlink(c *call) errno {
	target, e := c.name(c.u32(0), c.u32(1))
	if e != success {
		return e
	}
	p, e := c.at(c.fd(2), c.u32(3), c.u32(4))
	if e != success {
		return e
	}
	d, e := inside(p)
	if e != success {
		return e
	}
	return c.link(d, p, target)
}

// link makes a symbolic link at p, in d.
func (s *System) link(d *Dir, p place, target string) errno {
	if target == "" {
		return enoent
	}
	if path.IsAbs(target) {
		q := s.space.find(path.Clean(target))
		if q.mount != p.mount {
			return eperm
		}
		target = strings.Repeat("../", strings.Count(p.rel, "/")) + q.rel
	}
	return errnoOf(d.make(func() error { return d.root.Symlink(target, p.rel) }))
}

package wasi

import (
	"encoding/binary"
	"math"
)

// Rights are given for the asking: what a guest may do is decided by its
// mounts. Only those by which a file is opened are looked at.
const (
	rightRead     = 1 << 1
	rightSeek     = 1 << 2
	rightTell     = 1 << 5
	rightWrite    = 1 << 6
	rightAllocate = 1 << 8
	rightSetSize  = 1 << 22
	rightsWrite   = rightWrite | rightAllocate | rightSetSize
	rightsAll     = 1<<29 - 1 // but those of sockets
)

func fdClose(c *call) errno {
	fd := c.u32(0)
	if fd >= MaxDescriptors || c.table[fd] == nil {
		return ebadf
	}
	if fd == rootFD {
		return eperm
	}
	return errnoOf(c.drop(int(fd)))
}

func fdRenumber(c *call) errno {
	from, to := c.u32(0), c.u32(1)
	if from >= MaxDescriptors || to >= MaxDescriptors || c.table[from] == nil {
		return ebadf
	}
	if from == rootFD || to == rootFD {
		return eperm
	}
	if from == to {
		return success
	}
	err := c.drop(int(to))
	c.table[to], c.table[from] = c.table[from], nil
	return errnoOf(err)
}

// Duplicate makes to stand for what fd does, or the lowest number that is free
// where to is negative, and gives it; code is WASI's number of what is wrong. They
// share an offset and flags, as in POSIX. WASI has no such call.
func (s *System) Duplicate(fd, to int) (made int, code uint16) {
	if fd < 0 || to >= MaxDescriptors {
		return 0, uint16(ebadf)
	}
	d, e := s.get(uint32(fd))
	switch {
	case e != success:
		return 0, uint16(e)
	case fd == rootFD || to == rootFD:
		return 0, uint16(eperm)
	case fd == to:
		return to, 0
	}
	if to < 0 {
		if to, e = s.free(); e != success {
			return 0, uint16(e)
		}
	}
	_ = s.drop(to) // as dup2 does: what is said of closing it is lost
	s.table[to], d.twins = d, true
	return to, 0
}

func fdSync(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	if d.kind == stream {
		return einval
	}
	if f, ok := d.body.(*hostFile); ok && d.write {
		return errnoOf(f.file.Sync())
	}
	return success
}

func fdAdvise(c *call) errno {
	_, e := c.getFile(c.u32(0))
	switch {
	case e != success:
		return e
	case c.u32(3) > 5 || c.u64(1) > math.MaxInt64 || c.u64(2) > math.MaxInt64:
		return einval
	}
	return success
}

func fdAllocate(c *call) errno {
	f, e := c.getWritable(c.u32(0))
	if e != success {
		return e
	}
	offset, length := c.u64(1), c.u64(2)
	switch {
	case offset > math.MaxInt64 || length > math.MaxInt64 || length == 0:
		return einval
	case offset+length > math.MaxInt64:
		return efbig
	}
	return f.resize(int64(offset+length), true)
}

func fdFdstatGet(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	b := c.slice(c.u32(1), 24)
	if b == nil {
		return efault
	}
	clear(b)
	rights := uint64(rightsAll)
	switch {
	case d.kind == stream:
		b[0] = typeUnknown // as good as a pipe: a terminal would be asked for colours
		rights &^= rightSeek | rightTell
	case d.isFolder():
		b[0] = typeFolder
	default:
		b[0] = typeRegular
		if d.isDevice() {
			b[0] = typeChar // no terminal: it can be sought
		}
		if !d.read {
			rights &^= rightRead
		}
		if !d.write {
			rights &^= rightsWrite
		}
	}
	binary.LittleEndian.PutUint16(b[2:], d.flags)
	binary.LittleEndian.PutUint64(b[8:], rights)
	binary.LittleEndian.PutUint64(b[16:], rights)
	return success
}

// fdFdstatSetFlags cannot change how writes reach the disk: that was decided
// when the host opened the file.
func fdFdstatSetFlags(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	flags := c.u32(1)
	if flags&^flagsAll != 0 {
		return einval
	}
	if uint16(flags)&flagsSync != d.flags&flagsSync {
		return enotsup
	}
	d.flags = uint16(flags)
	return success
}

// fdFdstatSetRights takes rights away; asking for more of them changes nothing.
func fdFdstatSetRights(c *call) errno {
	d, e := c.get(c.u32(0))
	if e == success && d.kind == file {
		d.read = d.read && c.u64(1)&rightRead != 0
		d.write = d.write && c.u64(1)&rightsWrite != 0
	}
	return e
}

func fdFilestatGet(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	b := c.slice(c.u32(1), statSize)
	if b == nil {
		return efault
	}
	var s stat
	switch {
	case d.kind == stream:
		s = stat{device: spaceDevice, inode: uint64(d.stream) + 1, kind: typeUnknown, links: 1}
	case d.isFolder():
		s, e = c.statAt(c.space.find(d.path), true)
	default:
		s, e = d.body.fstat()
		s.device = d.device
	}
	if e == success {
		s.put(b)
	}
	return e
}

func fdFilestatSetSize(c *call) errno {
	f, e := c.getWritable(c.u32(0))
	if e != success {
		return e
	}
	if c.u64(1) > math.MaxInt64 {
		return einval
	}
	return f.resize(int64(c.u64(1)), false)
}

func fdFilestatSetTimes(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	a, m, e := moments(c.u64(1), c.u64(2), c.u32(3))
	switch {
	case e != success:
		return e
	case d.kind == stream:
		return einval
	case d.isFolder():
		p := c.space.find(d.path)
		if p.dir == nil {
			return erofs
		}
		return p.dir.setTimes(p.name, a, m)
	}
	f, ok := d.body.(*hostFile)
	if !ok || f.dir.readOnly {
		return erofs
	}
	return errnoOf(setFileTimes(f.file, a, m))
}

func fdPrestatGet(c *call) errno {
	d, e := c.getRoot(c.u32(0))
	if e != success {
		return e
	}
	b := c.slice(c.u32(1), 8)
	if b == nil {
		return efault
	}
	clear(b) // it is a folder
	binary.LittleEndian.PutUint32(b[4:], uint32(len(d.path)))
	return success
}

func fdPrestatDirName(c *call) errno {
	d, e := c.getRoot(c.u32(0))
	if e != success {
		return e
	}
	b := c.slice(c.u32(1), c.u32(2))
	switch {
	case b == nil:
		return efault
	case len(b) < len(d.path):
		return enametoolong
	}
	copy(b, d.path)
	return success
}

// fdReaddir lists a folder. A cookie is the number of the next entry; the
// list is read once, when the guest begins, so that cookies keep their meaning
// whatever is made and removed meanwhile. An entry that the buffer has no room
// for is cut: the guest asks for it again.
func fdReaddir(c *call) errno {
	d, e := c.get(c.u32(0))
	switch {
	case e != success:
		return e
	case !d.isFolder():
		return enotdir
	}
	room, used := c.slice(c.u32(1), c.u32(2)), c.u32At(4)
	if room == nil || used == nil {
		return efault
	}
	cookie := c.u64(3)
	if cookie == 0 || d.entries == nil {
		if e := c.enumerate(d); e != success {
			return e
		}
	}
	if cookie > uint64(len(d.entries)) {
		return einval
	}
	n := 0
	for i := cookie; i < uint64(len(d.entries)) && n < len(room); i++ {
		var head [24]byte
		x := d.entries[i]
		binary.LittleEndian.PutUint64(head[:], i+1)
		binary.LittleEndian.PutUint64(head[8:], x.inode)
		binary.LittleEndian.PutUint32(head[16:], uint32(len(x.name)))
		head[20] = x.kind
		n += copy(room[n:], head[:])
		n += copy(room[n:], x.name)
	}
	used.put(n)
	return success
}

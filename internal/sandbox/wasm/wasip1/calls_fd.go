package wasi

import (
	"encoding/binary"
	"math"
)

func fdClose(c *call) errno {
	d, e := c.get(c.fd(0))
	if e == ebadf {
		return e
	}
	if d != nil && d.kind == preopen {
		return eperm
	}
	c.table[c.fd(0)].close()
	c.table[c.fd(0)] = nil
	return success
}

func fdRenumber(c *call) errno {
	from, to := c.fd(0), c.fd(1)
	d, e := c.get(from)
	if e != success {
		return e
	}
	if to >= MaxDescriptors {
		return ebadf
	}
	if d.kind == preopen || c.table[to] != nil && c.table[to].kind == preopen {
		return eperm
	}
	if from == to {
		return success
	}
	if old := c.table[to]; old != nil {
		old.close()
	}
	c.table[to], c.table[from] = d, nil
	return success
}

func fdSync(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success || d.kind != file {
		return e
	}
	return errnoOf(d.file.Sync())
}

func fdAdvise(c *call) errno {
	d, e := c.get(c.fd(0))
	if e == success && d.kind == stdio {
		return espipe
	}
	return e
}

func fdAllocate(c *call) errno {
	d, e := c.writable(c.fd(0))
	if e != success {
		return e
	}
	offset, length := c.u64(1), c.u64(2)
	if offset > math.MaxInt64 || length > math.MaxInt64-offset || length == 0 {
		return einval
	}
	size, err := d.size()
	if err != nil || int64(offset+length) <= size {
		return errnoOf(err)
	}
	return errnoOf(d.dir.resize(d.file, int64(offset+length)))
}

// writable is a descriptor of a file that was opened for writing.
func (c *call) writable(fd uint32) (*descriptor, errno) {
	d, e := c.get(fd)
	switch {
	case e != success:
		return nil, e
	case d.isFolder():
		return nil, eisdir
	case d.kind == stdio:
		return nil, einval
	case !d.write:
		return nil, ebadf
	}
	return d, success
}

func fdStatGet(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	b := c.bytes(c.u32(1), 24)
	if b == nil {
		return efault
	}
	clear(b)
	b[0] = typeRegular
	rights := uint64(math.MaxUint64) >> 34 // all there are
	switch {
	case d.kind == stdio:
		b[0] = typeUnknown     // a pipe, as it were: no terminal, so no colours
		rights &^= 1<<2 | 1<<5 // seek and tell
	case d.isFolder():
		b[0] = typeFolder
	default:
		if !d.read {
			rights &^= rightRead
		}
		if !d.write {
			rights &^= rightWrite
		}
	}
	if d.append {
		b[2] = fdAppend
	}
	binary.LittleEndian.PutUint64(b[8:], rights)
	binary.LittleEndian.PutUint64(b[16:], rights)
	return success
}

func fdStatSetFlags(c *call) errno {
	d, e := c.get(c.fd(0))
	if e == success {
		d.append = c.u32(1)&fdAppend != 0
	}
	return e
}

func fdFilestat(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	switch d.kind {
	case stdio:
		c.putStat(c.u32(1), stat{kind: typeUnknown, links: 1})
	case blob:
		c.putStat(c.u32(1), stat{device: 1, number: d.number, kind: typeRegular, links: 1, size: int64(len(d.content))})
	case file:
		info, err := d.file.Stat()
		if err != nil {
			return errnoOf(err)
		}
		c.putStat(c.u32(1), hostStat(d.path, info))
	default:
		s, e := c.statAt(c.space.find(d.path), true)
		if e != success {
			return e
		}
		c.putStat(c.u32(1), s)
	}
	return success
}

func fdSetSize(c *call) errno {
	d, e := c.writable(c.fd(0))
	if e != success {
		return e
	}
	if c.u64(1) > math.MaxInt64 {
		return einval
	}
	return errnoOf(d.dir.resize(d.file, int64(c.u64(1))))
}

func fdSetTimes(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio || d.kind == preopen {
		return einval
	}
	return c.setTimes(c.space.find(d.path), c.u64(1), c.u64(2), c.u32(3), true)
}

func prestat(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success || d.kind != preopen {
		return ebadf
	}
	c.put32(c.u32(1), 0) // a folder
	c.put32(c.u32(1)+4, uint32(len(d.path)))
	return success
}

func prestatName(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success || d.kind != preopen {
		return ebadf
	}
	if int(c.u32(2)) < len(d.path) {
		return enametoolong
	}
	copy(c.bytes(c.u32(1), c.u32(2)), d.path)
	return success
}

func fdRead(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio {
		return c.readStdin(d)
	}
	n, e := c.readPieces(d, d.offset)
	d.offset += int64(n)
	c.put32(c.u32(3), uint32(n))
	return e
}

func (c *call) readStdin(d *descriptor) errno {
	pieces, e := c.vectors(c.u32(1), c.u32(2))
	if e != success {
		return e
	}
	if d.stream != 0 {
		return ebadf
	}
	n, ok := 0, true
	for _, p := range pieces {
		if len(p) > 0 && c.config.Stdin != nil {
			n, ok = c.config.Stdin(p)
			break // what is there now will do
		}
	}
	if !ok {
		return eintr
	}
	c.put32(c.u32(3), uint32(n))
	return success
}

// readPieces fills the pieces of parameters 1 and 2 from offset on.
func (c *call) readPieces(d *descriptor, offset int64) (int, errno) {
	if d.isFolder() {
		return 0, eisdir
	}
	pieces, e := c.vectors(c.u32(1), c.u32(2))
	if e != success {
		return 0, e
	}
	total := 0
	for _, p := range pieces {
		n, e := d.readAt(p, offset+int64(total))
		if e != success {
			return total, e
		}
		total += n
		if n < len(p) {
			break
		}
	}
	return total, success
}

func fdPread(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio {
		return espipe
	}
	if c.u64(3) > math.MaxInt64 {
		return einval
	}
	n, e := c.readPieces(d, int64(c.u64(3)))
	c.put32(c.u32(4), uint32(n))
	return e
}

func fdWrite(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	offset := d.offset
	if d.append {
		offset = -1
	}
	n, end, e := c.writePieces(d, offset)
	if n > 0 {
		d.offset = end
		e = success
	}
	c.put32(c.u32(3), uint32(n))
	return e
}

func fdPwrite(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio {
		return espipe
	}
	if c.u64(3) > math.MaxInt64 {
		return einval
	}
	n, _, e := c.writePieces(d, int64(c.u64(3)))
	c.put32(c.u32(4), uint32(n))
	return e
}

// writePieces writes the pieces of parameters 1 and 2 at offset.
func (c *call) writePieces(d *descriptor, offset int64) (total int, end int64, e errno) {
	pieces, e := c.vectors(c.u32(1), c.u32(2))
	if e != success {
		return 0, 0, e
	}
	if d.kind == stdio {
		return c.print(d, pieces)
	}
	if d.isFolder() || !d.write || d.kind != file {
		return 0, 0, ebadf
	}
	end = offset
	for _, p := range pieces {
		n, after, err := d.dir.writeAt(d.file, p, end)
		total, end = total+n, after
		if err != nil {
			return total, end, errnoOf(err)
		}
	}
	return total, end, success
}

func (c *call) print(d *descriptor, pieces [][]byte) (total int, end int64, e errno) {
	write := c.config.Stdout
	switch d.stream {
	case 0:
		return 0, 0, ebadf
	case 2:
		write = c.config.Stderr
	}
	for _, p := range pieces {
		if write != nil && len(p) > 0 {
			write(p)
		}
		total += len(p)
	}
	return total, 0, success
}

func fdSeek(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio || d.isFolder() {
		return espipe
	}
	base := int64(0)
	switch c.u32(2) {
	case 0:
	case 1:
		base = d.offset
	case 2:
		size, err := d.size()
		if err != nil {
			return errnoOf(err)
		}
		base = size
	default:
		return einval
	}
	by := int64(c.u64(1))
	if by > 0 && base > math.MaxInt64-by || base+by < 0 {
		return einval
	}
	d.offset = base + by
	c.put64(c.u32(3), uint64(d.offset))
	return success
}

func fdTell(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if d.kind == stdio || d.isFolder() {
		return espipe
	}
	c.put64(c.u32(1), uint64(d.offset))
	return success
}

// fdReaddir lists a folder from a cookie on: the number of the entry. The
// folder is read when the listing begins, so that cookies stay what they are.
func fdReaddir(c *call) errno {
	d, e := c.get(c.fd(0))
	if e != success {
		return e
	}
	if !d.isFolder() {
		return enotdir
	}
	cookie := c.u64(3)
	if cookie == 0 || d.entries == nil {
		if d.entries, e = c.list(c.space.find(d.path)); e != success {
			return e
		}
	}
	room := c.bytes(c.u32(1), c.u32(2))
	used := 0
	for i := cookie; i < uint64(len(d.entries)) && used < len(room); i++ {
		x := d.entries[i]
		head := make([]byte, 24, 24+len(x.name))
		binary.LittleEndian.PutUint64(head, i+1)
		binary.LittleEndian.PutUint64(head[8:], x.number)
		binary.LittleEndian.PutUint32(head[16:], uint32(len(x.name)))
		head[20] = x.kind
		used += copy(room[used:], append(head, x.name...))
	}
	c.put32(c.u32(4), uint32(used))
	return success
}

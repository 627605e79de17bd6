package wasi

import "math"

func fdRead(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	v, e := c.vectors(1)
	n := c.u32At(3)
	switch {
	case e != success:
		return e
	case n == nil:
		return efault
	case d.kind == stream:
		return c.readStream(d, v, n)
	}
	total, e := d.readPieces(v, d.offset)
	if e == success {
		d.offset += int64(total)
		n.put(total)
	}
	return e
}

func fdPread(c *call) errno {
	d, e := c.getFile(c.u32(0))
	if e != success {
		return e
	}
	v, e := c.vectors(1)
	n := c.u32At(4)
	switch {
	case e != success:
		return e
	case n == nil:
		return efault
	case c.u64(3) > math.MaxInt64:
		return einval
	}
	total, e := d.readPieces(v, int64(c.u64(3)))
	if e == success {
		n.put(total)
	}
	return e
}

func (d *descriptor) readPieces(v vectors, offset int64) (int, errno) {
	switch {
	case d.isFolder():
		return 0, eisdir
	case !d.read:
		return 0, ebadf
	}
	return v.each(func(p []byte) (int, errno) {
		n, e := d.body.readAt(p, offset)
		offset += int64(n)
		return n, e
	})
}

// readStream fills the first piece that has room: a stream gives what is
// there, and waits only when nothing is.
func (c *call) readStream(d *descriptor, v vectors, n *result) errno {
	if d.stream != 0 {
		return ebadf
	}
	total, ok := 0, true
	for k := range v.count() {
		if p := v.at(k); len(p) > 0 && c.config.Stdin != nil {
			total, ok = c.config.Stdin(p[:min(len(p), maxTransfer)])
			break
		}
	}
	if !ok {
		return eintr
	}
	n.put(total)
	return success
}

func fdWrite(c *call) errno {
	d, e := c.get(c.u32(0))
	if e != success {
		return e
	}
	v, e := c.vectors(1)
	n := c.u32At(3)
	switch {
	case e != success:
		return e
	case n == nil:
		return efault
	case d.kind == stream:
		return c.writeOutput(d, v, n)
	case d.isDevice():
		return d.discard(v, n)
	}
	f, e := c.getWritable(c.u32(0))
	if e != success {
		return e
	}
	offset := d.offset
	if d.flags&flagAppend != 0 {
		offset = -1
	}
	total, end, e := f.write(v, offset)
	if e == success {
		d.offset = end
		n.put(total)
	}
	return e
}

func fdPwrite(c *call) errno {
	d, e := c.getFile(c.u32(0))
	if e != success {
		return e
	}
	v, e := c.vectors(1)
	n := c.u32At(4)
	switch {
	case e != success:
		return e
	case n == nil:
		return efault
	case c.u64(3) > math.MaxInt64:
		return einval
	case d.isDevice():
		return d.discard(v, n)
	}
	f, e := c.getWritable(c.u32(0))
	if e != success {
		return e
	}
	total, _, e := f.write(v, int64(c.u64(3)))
	if e == success {
		n.put(total)
	}
	return e
}

func (c *call) writeOutput(d *descriptor, v vectors, n *result) errno {
	hook := c.config.Stdout
	switch d.stream {
	case 0:
		return ebadf
	case 2:
		hook = c.config.Stderr
	}
	total, e := v.each(func(p []byte) (int, errno) {
		if hook != nil {
			hook(p)
		}
		return len(p), success
	})
	if e == success {
		n.put(total)
	}
	return e
}

func fdSeek(c *call) errno {
	d, e := c.getFile(c.u32(0))
	if e != success {
		return e
	}
	to := c.u64At(3)
	if to == nil {
		return efault
	}
	base := int64(0)
	switch c.u32(2) {
	case 0:
	case 1:
		base = d.offset
	case 2:
		s, e := d.body.fstat()
		if e != success {
			return e
		}
		base = s.size
	default:
		return einval
	}
	by := int64(c.u64(1))
	if by > math.MaxInt64-1-base || base+by < 0 {
		return einval
	}
	d.offset = base + by
	to.put(d.offset)
	return success
}

func fdTell(c *call) errno {
	d, e := c.getFile(c.u32(0))
	if e != success {
		return e
	}
	to := c.u64At(1)
	if to == nil {
		return efault
	}
	to.put(d.offset)
	return success
}

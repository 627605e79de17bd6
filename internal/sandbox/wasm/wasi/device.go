package wasi

import "io"

// devicesAt is where the devices lie, unless something is mounted there.
const devicesAt = "/dev"

// maxDraw bounds one read of a device that has no end: nothing interrupts the host.
const maxDraw = 1 << 20

// devices is the folder of the devices that programs take for granted. It
// cannot be changed.
type devices struct {
	random io.Reader
}

var (
	_ tree = (*devices)(nil)
	_ body = (*device)(nil)
)

// device is a file without content. What is written there is gone.
type device struct {
	name string
	// fill fills what is read; nil: it is at its end.
	fill func(p []byte) error
}

// find gives the device called name; nil: the folder itself.
func (ds *devices) find(name string) (*device, errno) {
	switch name {
	case ".":
		return nil, success
	case "null":
		return &device{name: name}, success
	case "zero":
		return &device{name, func(p []byte) error { clear(p); return nil }}, success
	case "random", "urandom":
		return &device{name, func(p []byte) error { _, err := io.ReadFull(ds.random, p); return err }}, success
	}
	return nil, enoent
}

func (ds *devices) stat(name string, _ bool) (stat, errno) {
	d, e := ds.find(name)
	switch {
	case e != success:
		return stat{}, e
	case d == nil:
		return stat{inode: inodeOf(devicesAt), kind: typeFolder, links: 1}, success
	}
	return d.fstat()
}

func (ds *devices) list(name string, _ int) ([]entry, errno) {
	d, e := ds.find(name)
	switch {
	case e != success:
		return nil, e
	case d != nil:
		return nil, enotdir
	}
	var entries []entry
	for _, name := range []string{"null", "random", "urandom", "zero"} {
		entries = append(entries, entry{name, typeChar, inodeOf(devicesAt + "/" + name)})
	}
	return entries, success
}

func (ds *devices) open(name string, how opening) (body, errno) {
	d, e := ds.find(name)
	switch {
	case e == enoent && how.create:
		return nil, erofs
	case e != success:
		return nil, e
	case how.create && how.exclusive:
		return nil, eexist
	case d == nil && (how.alters() || how.create):
		return nil, eisdir
	case d == nil:
		return nil, success
	case how.folder:
		return nil, enotdir
	}
	return d, success
}

func (ds *devices) readlink(name string) (string, errno) {
	if _, e := ds.find(name); e != success {
		return "", e
	}
	return "", einval
}

func (d *device) readAt(p []byte, _ int64) (int, errno) {
	if d.fill == nil {
		return 0, success
	}
	p = p[:min(len(p), maxDraw)]
	if d.fill(p) != nil {
		return 0, eio
	}
	return len(p), success
}

func (d *device) fstat() (stat, errno) {
	return stat{inode: inodeOf(devicesAt + "/" + d.name), kind: typeChar, links: 1}, success
}

func (d *device) close() error { return nil }

func (d *descriptor) isDevice() bool {
	_, is := d.body.(*device)
	return is
}

// discard takes what is written to a device.
func (d *descriptor) discard(v vectors, n *result) errno {
	if !d.write {
		return ebadf
	}
	total, e := v.each(func(p []byte) (int, errno) { return len(p), success })
	if e == success {
		n.put(total)
	}
	return e
}

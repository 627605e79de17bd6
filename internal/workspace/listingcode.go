package workspace

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

var (
	_ encoding.BinaryMarshaler   = (*Listing)(nil)
	_ encoding.BinaryUnmarshaler = (*Listing)(nil)
)

// A listing is written as listingMagic, the name of the boot, the number of
// names in the tree's folder, and each entry: its name, its flags, and what its
// kind has; after a folder the number of names in it, and these. Numbers are
// varints, times the differences to the entry before.
const listingMagic = "pdtree1"

const (
	kindMask    = 3
	flagRacy    = 4
	flagUnknown = 8

	maxBoot = 64
)

// MarshalBinary encodes the listing; the same listing gives the same bytes.
func (l *Listing) MarshalBinary() ([]byte, error) {
	e := encoder{data: make([]byte, 0, 64+96*len(l.top().all))}
	e.data = append(e.data, listingMagic...)
	if l == nil {
		l = &Listing{}
	}
	e.text(l.boot)
	e.folder(l.top())
	return e.data, nil
}

type encoder struct {
	data []byte
	last int64 // the time before
}

func (e *encoder) number(n uint64) { e.data = binary.AppendUvarint(e.data, n) }

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	e.data = append(e.data, s...)
}

func (e *encoder) time(t int64) {
	e.data = binary.AppendVarint(e.data, t-e.last)
	e.last = t
}

func (e *encoder) stamp(s stamp) {
	e.number(uint64(s.size))
	e.time(s.modified)
	e.time(s.meta)
	e.number(s.inode)
}

func (e *encoder) folder(b branch) {
	n := uint64(0)
	for c := b; c.at < c.end; c.skip() {
		n++
	}
	e.number(n)
	for x, below := b.first(); x != nil; x, below = b.first() {
		b.skip()
		e.text(x.name)
		flags := byte(x.kind)
		if x.racy {
			flags |= flagRacy
		}
		if x.unknown {
			flags |= flagUnknown
		}
		e.data = append(e.data, flags)
		switch x.kind {
		case isFolder:
			e.number(uint64(x.mode))
			e.time(x.stamp.modified)
			e.folder(below)
		case isLink:
			e.stamp(x.stamp)
			e.text(x.target)
		case isFile:
			e.number(uint64(x.mode))
			e.stamp(x.stamp)
			if !x.unknown {
				e.data = append(e.data, x.ref.Digest[:]...)
				e.number(uint64(x.ref.Size))
				e.number(uint64(x.ref.Stored))
			}
		}
	}
}

// UnmarshalBinary decodes what MarshalBinary gave. What could not be a listing
// is a fault.Invalid, whoever made it: one that was taken names nothing outside
// of a tree, and nothing twice.
func (l *Listing) UnmarshalBinary(data []byte) error {
	return l.read(data, 0)
}

func (l *Listing) read(data []byte, most int) error {
	rest, ok := strings.CutPrefix(string(data), listingMagic)
	if !ok {
		return broken(errors.New("it does not begin as it should"))
	}
	d := decoder{rest: rest, most: most}
	boot := d.text(maxBoot)
	d.folder(0)
	if d.err == nil && d.rest != "" {
		d.fail("%d bytes follow it", len(d.rest))
	}
	if d.err != nil {
		return broken(d.err)
	}
	*l = Listing{boot: boot, entries: d.entries}
	return nil
}

func broken(err error) error {
	return fault.New(fault.Invalid, "the list of a workspace's files is malformed").
		WithHint("go back to another checkpoint").WithCause(fmt.Errorf("decoding a listing: %w", err))
}

// decoder reads a listing; after an error it gives zeros.
type decoder struct {
	rest    string
	last    int64
	most    int // how many entries there may be; zero: as many as there are
	entries []entry
	err     error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.rest = ""
}

func (d *decoder) take(n int) string {
	if n > len(d.rest) {
		d.fail("it ends too early")
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) number(limit uint64) uint64 {
	n, size := uvarint(d.rest)
	if size <= 0 || n > limit {
		d.fail("a number is malformed or too large")
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// uvarint reads as [binary.Uvarint] does.
func uvarint(s string) (uint64, int) {
	return binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
}

func (d *decoder) text(limit int) string { return d.take(int(d.number(uint64(limit)))) }

func (d *decoder) time() int64 {
	u := d.number(1<<64 - 1)
	d.last += int64(u>>1) ^ -int64(u&1) // as binary.Varint does
	return d.last
}

const maxSize = 1<<63 - 1

func (d *decoder) stamp() (s stamp) {
	s.size = int64(d.number(maxSize))
	s.modified = d.time()
	s.meta = d.time()
	s.inode = d.number(1<<64 - 1)
	return s
}

// folder reads the names of one folder and what is below them.
func (d *decoder) folder(depth int) {
	last := ""
	n := d.number(maxSize)
	if n > 0 && depth > maxDepth {
		d.fail("folders are too deep")
	}
	for ; n > 0 && d.err == nil; n-- {
		x := entry{name: d.text(maxName)}
		if d.err == nil && (!goodName(x.name) || x.name <= last) {
			d.fail("the name %q cannot be there", x.name)
		}
		last = x.name
		flags := d.take(1)
		if d.err != nil {
			return
		}
		x.kind, x.racy, x.unknown = kind(flags[0]&kindMask), flags[0]&flagRacy != 0, flags[0]&flagUnknown != 0
		if flags[0]&^(kindMask|flagRacy|flagUnknown) != 0 {
			d.fail("%s has unknown flags", x.name)
		}
		d.entry(x, depth)
	}
}

// entry reads the rest of an entry, and what is below it.
func (d *decoder) entry(x entry, depth int) {
	switch x.kind {
	case isFolder:
		x.mode = fs.FileMode(d.number(uint64(fs.ModePerm)))
		x.stamp.modified = d.time()
	case isLink:
		x.stamp = d.stamp()
		if x.target = d.text(maxPath); x.target == "" || strings.ContainsRune(x.target, 0) {
			d.fail("a link leads nowhere")
		}
	case isFile:
		x.mode = fs.FileMode(d.number(uint64(fs.ModePerm)))
		x.stamp = d.stamp()
		if !x.unknown {
			copy(x.ref.Digest[:], d.take(len(blob.Digest{})))
			x.ref.Size = int64(d.number(maxSize))
			x.ref.Stored = int64(d.number(maxSize))
		}
	default:
		d.fail("an entry is of no kind")
	}
	k := len(d.entries)
	if d.most > 0 && k >= d.most {
		d.tooMany()
		return
	}
	d.entries = append(d.entries, x)
	if x.kind == isFolder {
		d.folder(depth + 1)
	}
	d.entries[k].end = len(d.entries)
}

// goodName tells whether a folder of a listing can hold such a name.
func goodName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && !strings.HasPrefix(name, tempPrefix)
}

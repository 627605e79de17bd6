package wasi

import (
	"encoding/binary"
	"hash/fnv"
	"io/fs"
	"math"
	"time"
)

// The types of files.
const (
	typeUnknown uint8 = 0
	typeBlock   uint8 = 1
	typeChar    uint8 = 2
	typeFolder  uint8 = 3
	typeRegular uint8 = 4
	typeSymlink uint8 = 7
)

// stat is what there is to know of a file. Within a [Dir] device is the
// host's; the guest sees the number of the mount instead.
type stat struct {
	device, inode               uint64
	kind                        uint8
	links                       uint64
	size                        int64
	accessed, modified, changed int64 // ns since 1970
}

const statSize = 64 // of WASI's filestat

func (s stat) put(b []byte) {
	le := binary.LittleEndian
	clear(b)
	le.PutUint64(b, s.device)
	le.PutUint64(b[8:], s.inode)
	b[16] = s.kind
	le.PutUint64(b[24:], s.links)
	le.PutUint64(b[32:], uint64(s.size))
	le.PutUint64(b[40:], uint64(s.accessed))
	le.PutUint64(b[48:], uint64(s.modified))
	le.PutUint64(b[56:], uint64(s.changed))
}

// plainStat is what every host tells of a file called name.
func plainStat(name string, info fs.FileInfo) stat {
	t := info.ModTime().UnixNano()
	return stat{inode: inodeOf(name), kind: kindOf(info.Mode()), links: 1, size: info.Size(), accessed: t, modified: t, changed: t}
}

func kindOf(mode fs.FileMode) uint8 {
	switch mode.Type() {
	case 0:
		return typeRegular
	case fs.ModeDir:
		return typeFolder
	case fs.ModeSymlink:
		return typeSymlink
	case fs.ModeDevice:
		return typeBlock
	case fs.ModeDevice | fs.ModeCharDevice:
		return typeChar
	}
	return typeUnknown
}

// inodeOf makes up a number for a file that has none.
func inodeOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64() | 1<<63
}

// moments translates the times that a guest sets. The zero time stays for one
// that is to be left as it is.
func moments(accessed, modified uint64, flags uint32) (a, m time.Time, e errno) {
	const given, now = 1, 2 // for accessed; two bits further for modified
	if flags > 15 || flags&3 == given|now || flags>>2 == given|now {
		return a, m, einval
	}
	moment := func(ns uint64, flags uint32) time.Time {
		switch flags & 3 {
		case given:
			if ns > math.MaxInt64 {
				e = einval
			}
			return time.Unix(0, int64(ns))
		case now:
			return time.Now()
		}
		return time.Time{}
	}
	return moment(accessed, flags), moment(modified, flags>>2), e
}

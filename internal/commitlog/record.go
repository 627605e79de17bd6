package commitlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A segment is a sequence of sectors. The first is its header:
//
//	magic    8 bytes
//	crc      4 bytes, of what follows
//	version  1 byte
//	salt     16 random bytes
//	boot     16 bytes of the digest of its name
//	order    8 bytes, a number that is greater than those of segments used before
//
// Then come records, each from the beginning of a sector:
//
//	crc      4 bytes, of the salt and of all that follows
//	length   4 bytes, of the body
//	body     entries
//
// and an entry is
//
//	kind     1 byte
//	name     uvarint of length, and as many bytes
//	content  uvarint of length, and as many bytes; of a put and of a deferred one
//
// Numbers are little-endian. The salt is a new one each time a segment is used, so records
// of an earlier use do not fit, nor does anything that a program has put into a file.
const (
	sectorBytes = 512
	magic       = "pdlog\x00\x00\x01"
	version     = 1
	saltBytes   = 16
	headBytes   = 4 + 4
)

// maxRecord bounds a record's body. What is larger is not committed by the log.
const maxRecord = 1 << 20

const (
	kindPut      = 1 // the file has this content
	kindForget   = 2 // what was put before does not count: the file was synced, or removed
	kindDeferred = 3 // the file has this content, and may not be there yet
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// entry is a change of one file.
type entry struct {
	kind    byte
	name    string
	content []byte
	at      int // where the content begins in the record's body, and its bytes
	size    int
}

// puts reports whether the entry gives its file a content.
func (e entry) puts() bool { return e.kind == kindPut || e.kind == kindDeferred }

// body encodes entries, and notes in them where their contents are.
func body(entries []entry) []byte {
	size := 0
	for _, e := range entries {
		size += 1 + 2*binary.MaxVarintLen32 + len(e.name) + len(e.content)
	}
	b := make([]byte, 0, size)
	for k, e := range entries {
		b = append(b, e.kind)
		b = binary.AppendUvarint(b, uint64(len(e.name)))
		b = append(b, e.name...)
		if e.puts() {
			b = binary.AppendUvarint(b, uint64(len(e.content)))
			entries[k].at = len(b)
			b = append(b, e.content...)
		}
	}
	return b
}

var errRecord = errors.New("commitlog: a record is not what it should be")

// entriesOf decodes a body. Contents are parts of it.
func entriesOf(b []byte) (entries []entry, err error) {
	whole := len(b)
	text := func() []byte {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			err = errRecord
			return nil
		}
		part := b[k : k+int(n)]
		b = b[k+int(n):]
		return part
	}
	for len(b) > 0 && err == nil {
		e := entry{kind: b[0]}
		b = b[1:]
		e.name = string(text())
		switch e.kind {
		case kindPut, kindDeferred:
			if err == nil {
				e.content = text()
				e.at, e.size = whole-len(b)-len(e.content), len(e.content)
			}
		case kindForget:
		default:
			err = errRecord
		}
		entries = append(entries, e)
	}
	return entries, err
}

// appendRecord appends a body as a record that fills whole sectors.
func appendRecord(buf []byte, salt [saltBytes]byte, body []byte) []byte {
	begin := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(body)))
	buf = append(buf, body...)
	binary.LittleEndian.PutUint32(buf[begin:], checksum(salt, buf[begin+4:]))
	return append(buf, make([]byte, padding(len(buf)-begin))...)
}

func checksum(salt [saltBytes]byte, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(salt[:], crcTable), crcTable, data)
}

// padding is what is missing to whole sectors.
func padding(n int) int { return (sectorBytes - n%sectorBytes) % sectorBytes }

// recordBytes is what a body takes in a segment.
func recordBytes(body int) int { return headBytes + body + padding(headBytes+body) }

// recordAt reads the record at the beginning of data. It gives how many bytes it takes;
// zero: there is none.
func recordAt(data []byte, salt [saltBytes]byte) (body []byte, size int) {
	size = claimedBytes(data)
	if size == 0 {
		return nil, 0
	}
	end := headBytes + int(binary.LittleEndian.Uint32(data[4:]))
	if end > len(data) || binary.LittleEndian.Uint32(data) != checksum(salt, data[4:end]) {
		return nil, 0
	}
	return data[headBytes:end], size
}

// claimedBytes is what a record takes that begins like this, if it is one; zero: it is none.
func claimedBytes(head []byte) int {
	if len(head) < headBytes {
		return 0
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n == 0 || n > maxRecord {
		return 0
	}
	return recordBytes(int(n))
}

// bootID stands for the name of a boot.
type bootID [16]byte

func bootOf(name string) bootID {
	sum := sha256.Sum256([]byte(name))
	return bootID(sum[:])
}

// use is one use of a segment: what its header says.
type use struct {
	salt  [saltBytes]byte
	boot  bootID
	order uint64
}

// header makes a segment's first sector.
func (u use) header() []byte {
	b := append(make([]byte, 0, sectorBytes), magic...)
	b = append(b, 0, 0, 0, 0, version)
	b = append(b, u.salt[:]...)
	b = append(b, u.boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, u.order)
	b = b[:sectorBytes]
	binary.LittleEndian.PutUint32(b[len(magic):], crc32.Checksum(b[len(magic)+4:], crcTable))
	return b
}

// readHeader reads one; ok is false for anything else, such as a segment that is not used.
func readHeader(b []byte) (u use, ok bool) {
	if len(b) < sectorBytes || !bytes.HasPrefix(b, []byte(magic)) {
		return u, false
	}
	rest := b[len(magic)+4 : sectorBytes]
	if binary.LittleEndian.Uint32(b[len(magic):]) != crc32.Checksum(rest, crcTable) || rest[0] != version {
		return u, false
	}
	rest = rest[1:]
	return use{[saltBytes]byte(rest), bootID(rest[saltBytes:]), binary.LittleEndian.Uint64(rest[2*saltBytes:])}, true
}

package workspace

import (
	"errors"

	"paddock/internal/fault"
)

// errTooMany is why a listing with too many entries was not read on.
var errTooMany = errors.New("workspace: it has too many entries")

// ReadListing is UnmarshalBinary for what may come from anywhere: a listing of
// what takes more than diskBytes, by the number of its entries alone, is a
// fault.Exhausted, and no more of it than that is held in memory.
func ReadListing(data []byte, diskBytes int64) (*Listing, error) {
	l := new(Listing)
	err := l.read(data, int(max(diskBytes, 0)/blockBytes)+1)
	if err == nil && l.DiskBytes() > diskBytes {
		err = errTooMany
	}
	if errors.Is(err, errTooMany) {
		return nil, fault.New(fault.Exhausted, "the files take more than %d MiB", diskBytes>>20).WithCause(err)
	}
	return l, err
}

func (d *decoder) tooMany() {
	if d.err == nil {
		d.err = errTooMany
	}
	d.rest = ""
}

// DiskBytes is what a tree takes that is as the listing says, counted as
// [Tree.DiskBytes] counts; 1<<63 - 1 also where it is more.
func (l *Listing) DiskBytes() (n int64) {
	for k := range l.top().all {
		size := int64(blockBytes)
		if e := &l.entries[k]; e.kind == isFile && !e.unknown {
			size = max(e.ref.Size, blockBytes)
		}
		if n > maxSize-size {
			return maxSize
		}
		n += size
	}
	return n
}

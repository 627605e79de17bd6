package blob

import (
	"bytes"
	"io"
	"slices"
)

// Stored is a content and the file that keeps it: who has a copy of that elsewhere can put
// it in its place.
type Stored struct {
	Ref
	// Open reads the file, which has Ref.Stored bytes.
	Open func() (io.ReadCloser, error)
}

// Contents gives what was put into the batch, in the order of the digests: also what the
// store had already. Their files can be opened until the batch is synced, committed or
// closed.
func (b *Batch) Contents() (all []Stored) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range b.items {
		all = append(all, Stored{it.ref, b.opener(it.data, it.temp, it.digest)})
	}
	slices.SortFunc(all, func(a, b Stored) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	return all
}

// opener opens an item's file: it is in memory, or has a temporary name, or its own.
func (b *Batch) opener(data []byte, temp string, d Digest) func() (io.ReadCloser, error) {
	if data != nil {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	if temp == "" {
		temp = b.store.path(d)
	}
	return func() (io.ReadCloser, error) {
		f, err := b.store.files.Open(temp)
		return f, Explain(err, reading)
	}
}

package sessionfile

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/iolimit"
	"paddock/internal/workspace"
)

// Contents are where what a head names is found.
type Contents struct {
	// Store has the lists of files and what they name. Whoever has Write called
	// sees to it that nothing of that is collected meanwhile.
	Store *blob.Store
	// Listing reads a list of files from Store.
	Listing func(blob.Ref) (*workspace.Listing, error)
	// Layers are the interpreters' states.
	Layers []*Layer
}

// Write writes an archive, until ctx ends. After an error what was written is no
// archive.
func Write(ctx context.Context, to io.Writer, head Head, from Contents) error {
	head.Format = format
	// What only says how it came to this, and whose it was.
	c := &head.Checkpoint
	c.Record, c.Owner, c.Variables, c.Files = nil, "", nil, nil
	w := &writer{ctx: ctx, head: head, from: from, named: map[blob.Digest]blob.Ref{}, layers: map[blob.Digest]*Layer{}}
	if err := w.find(); err != nil {
		return err
	}
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return err
	}
	defer z.Close()
	w.out = tar.NewWriter(z)
	if err := w.write(); err != nil {
		return err
	}
	return errors.Join(w.out.Close(), z.Close())
}

type writer struct {
	ctx    context.Context
	head   Head
	from   Contents
	out    *tar.Writer
	lists  []blob.Ref
	named  map[blob.Digest]blob.Ref // contents of the store, but for lists
	layers map[blob.Digest]*Layer
}

// find finds out what the archive has to hold.
func (w *writer) find() error {
	for _, l := range w.from.Layers {
		w.layers[l.Ref().Digest] = l
	}
	for _, ref := range w.head.Checkpoint.Trees {
		list, err := w.from.Listing(ref)
		if err != nil {
			return err
		}
		if !slices.Contains(w.lists, ref) {
			w.lists = append(w.lists, ref)
		}
		for ref := range list.Refs() {
			w.named[ref.Digest] = ref
		}
	}
	for _, ref := range w.lists {
		delete(w.named, ref.Digest)
	}
	for digest := range w.layers {
		delete(w.named, digest)
	}
	return nil
}

// write writes all entries in their order.
func (w *writer) write() error {
	if err := w.json(headName, w.head); err != nil {
		return err
	}
	for _, ref := range slices.Concat(w.lists, slices.SortedFunc(maps.Values(w.named), byDigest)) {
		if err := w.blob(ref); err != nil {
			return err
		}
	}
	for digest, layer := range w.layers {
		if err := w.content(digest, layer.Size(), layer.Reader()); err != nil {
			return err
		}
	}
	return w.json(endName, trailer{Blobs: len(w.lists) + len(w.named) + len(w.layers)})
}

func byDigest(a, b blob.Ref) int { return strings.Compare(a.Digest.String(), b.Digest.String()) }

func (w *writer) json(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > maxHead {
		return fault.New(fault.Unsupported, "the interpreters say too much of themselves for an archive").WithHint("delete variables with long names, and run something")
	}
	if err := w.begin(name, int64(len(data))); err != nil {
		return err
	}
	_, err = w.out.Write(data)
	return err
}

// blob writes a content of the store.
func (w *writer) blob(ref blob.Ref) error {
	r, err := w.from.Store.Open(ref)
	if err != nil {
		return err
	}
	defer r.Close()
	return w.content(ref.Digest, ref.Size, r)
}

func (w *writer) content(digest blob.Digest, size int64, from io.Reader) error {
	if err := w.begin(blobFolder+digest.String(), size); err != nil {
		return err
	}
	_, err := io.Copy(w.out, iolimit.WithContext(w.ctx, from))
	return err
}

// begin begins an entry.
func (w *writer) begin(name string, size int64) error {
	return w.out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: w.head.ExportedAt})
}

package sessionfile

import (
	"archive/tar"
	"bytes"
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

const (
	// blockBytes is what any content counts at least towards what an owner may
	// have, as files do.
	blockBytes = 4 << 10
	// entryBytes is what tar puts around a content, at most, and slack what an
	// archive has besides its contents.
	entryBytes = 4 << 10
	slack      = 64 << 10
	// maxInterpreters and maxState bound what an archive says of interpreters;
	// sandbox.Snapshot.State has 64 KiB at most.
	maxInterpreters = 16
	maxState        = 64 << 10
)

// Limits are what an archive may hold and take. The zero Limits allow nothing.
type Limits struct {
	// Bytes bounds the archive, each of its contents and all of them together.
	Bytes int64
	// Room refuses so many bytes more on disk, for which there is no room.
	Room func(bytes int64) error
	// Trees are the folders that there may be, and what each may take on disk.
	Trees map[string]int64
	// Listing bounds a list of files, in bytes; Layers how many layers an
	// interpreter's state has.
	Listing int64
	Layers  int
	// Memory is what an interpreter may have; what says that it had more is not
	// believed.
	Memory int64
}

// room is Room, where there is one.
func (l *Limits) room(bytes int64) error {
	if l.Room == nil {
		return l.exceeded()
	}
	return l.Room(bytes)
}

// exceeded is for what is more than Bytes.
func (l *Limits) exceeded() error {
	return fault.New(fault.Exhausted, "the session takes more than the %d MiB that yours may take together", l.Bytes>>20).
		WithHint("the operator can raise limits.max_disk_per_client_mb")
}

// Read reads an archive that may come from anywhere, until ctx ends: nothing in
// it is believed, and nothing of it is taken before it is known to be wanted and
// to fit. Its contents are put into a batch, which is not synced; after an error
// nothing of that is wanted. The head names contents as the batch's store has
// them, and no record, changes or marks. What is not a whole archive is a
// fault.Invalid, one of a later format a fault.Unsupported, and what is more than
// the limits allow a fault.Exhausted.
func Read(ctx context.Context, from io.Reader, to *blob.Batch, limits Limits) (Head, error) {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return Head{}, err
	}
	defer z.Close()
	r := &reader{limits: limits, batch: to, want: map[blob.Digest]int64{}, got: map[blob.Digest]blob.Ref{}}
	r.bytes = &iolimit.Reader{R: iolimit.WithContext(ctx, z), Left: maxHead + slack, Over: errTooLong}
	r.in = tar.NewReader(r.bytes)
	for _, step := range []func() error{r.readHead, r.readLists, r.readContents, r.readEnd} {
		if err := step(); err != nil {
			if ended := context.Cause(ctx); ended != nil {
				err = ended
			}
			return Head{}, err
		}
	}
	return r.head, nil
}

type reader struct {
	limits Limits
	batch  *blob.Batch
	bytes  *iolimit.Reader // what tar reads
	in     *tar.Reader

	head  Head
	want  map[blob.Digest]int64 // the sizes of the contents that are missing
	got   map[blob.Digest]blob.Ref
	files int64 // what the files will take
}

// next gives the next entry, which must be an ordinary file.
func (r *reader) next() (*tar.Header, error) {
	h, err := r.in.Next()
	if err != nil {
		return nil, errNotWhole("it ends too early, or cannot be read").WithCause(err)
	}
	if h.Typeflag != tar.TypeReg || h.Size < 0 {
		return nil, errNotWhole("it holds %.100q", h.Name)
	}
	return h, nil
}

// json reads the next entry, which has this name.
func (r *reader) json(name string, most int64, v any) error {
	h, err := r.next()
	if err != nil {
		return err
	}
	if h.Name != name || h.Size > most {
		return errNotWhole("%s is not where it should be, or too long", name)
	}
	data, err := io.ReadAll(r.in)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return errNotWhole("%s cannot be read", name).WithCause(err)
	}
	return nil
}

// readHead reads what the archive says of itself.
func (r *reader) readHead() error {
	if err := r.json(headName, maxHead, &r.head); err != nil {
		return err
	}
	if r.head.Format != format {
		return fault.New(fault.Unsupported, "the archive has the format %d, and this paddock knows %d", r.head.Format, format).WithHint("update paddock")
	}
	c := &r.head.Checkpoint
	c.Machine, c.Waiting = nil, nil // none are carried: they fit nowhere else
	for name := range c.Trees {
		if _, known := r.limits.Trees[name]; !known {
			return errNotWhole("it names the folder %.100q", name)
		}
	}
	if len(c.Interpreters) > maxInterpreters {
		return errNotWhole("it names %d interpreters", len(c.Interpreters))
	}
	for runtime, in := range c.Interpreters {
		if len(in.State) > maxState || len(in.Layers) > r.limits.Layers {
			return errNotWhole("what it says of %.100q is too long", runtime)
		}
		// What was at hand where it came from is not here.
		if in.Mark, in.Anew = "", true; in.Memory < 0 || in.Memory > r.limits.Memory {
			in.Memory = 0
		}
		c.Interpreters[runtime] = in
	}
	// As JSON that is written here it may be longer.
	if data, err := json.Marshal(c.Interpreters); err != nil || len(data) > maxHead {
		return errNotWhole("what it says of interpreters is too long").WithCause(err)
	}
	return nil
}

// readLists reads the lists of files, which say what else is wanted.
func (r *reader) readLists() error {
	c := &r.head.Checkpoint
	for _, ref := range c.Trees {
		if ref.Size > r.limits.Listing {
			return errNotWhole("its list of files is too long")
		}
		if err := r.wants(ref); err != nil {
			return err
		}
	}
	r.bytes.Left += int64(len(r.want)) * (r.limits.Listing + entryBytes)
	lists := map[blob.Digest]*workspace.Listing{}
	for len(r.want) > 0 {
		var data bytes.Buffer
		digest, err := r.content(&data)
		if err != nil {
			return err
		}
		if lists[digest], err = r.list(digest, data.Bytes()); err != nil {
			return err
		}
	}
	for _, list := range lists {
		for ref := range list.Refs() {
			if err := r.wants(ref); err != nil {
				return err
			}
		}
	}
	for _, in := range c.Interpreters {
		for _, ref := range in.Layers {
			if err := r.wants(ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// list decodes a list, for each tree that it is of.
func (r *reader) list(digest blob.Digest, data []byte) (list *workspace.Listing, err error) {
	for name, ref := range r.head.Checkpoint.Trees {
		if ref.Digest != digest {
			continue
		}
		limit := r.limits.Trees[name]
		list, err = workspace.ReadListing(data, limit)
		if fault.KindOf(err) == fault.Exhausted {
			return nil, fault.New(fault.Exhausted, "the session's files take more than the %d MiB that are allowed", limit>>20).
				WithHint("the operator can raise sessions.max_disk_mb").WithCause(err)
		}
		if err != nil {
			return nil, errNotWhole("its list of files cannot be read").WithCause(err)
		}
		r.files += list.DiskBytes()
	}
	return list, nil
}

// wants notes that a content is needed.
func (r *reader) wants(ref blob.Ref) error {
	if there, ok := r.got[ref.Digest]; ok {
		if there.Size != ref.Size {
			return errNotWhole("it does not agree on the size of a content")
		}
		return nil
	}
	if size, ok := r.want[ref.Digest]; ref.Size < 0 || ok && size != ref.Size {
		return errNotWhole("it does not agree on the size of a content")
	}
	if ref.Size > r.limits.Bytes {
		return r.limits.exceeded()
	}
	r.want[ref.Digest] = ref.Size
	return nil
}

// readContents reads all that is missing, if there is room for it.
func (r *reader) readContents() error {
	sum := int64(0)
	for _, size := range r.want {
		if sum += max(size, blockBytes); sum > r.limits.Bytes {
			return r.limits.exceeded()
		}
		r.bytes.Left += size + entryBytes
	}
	if err := r.limits.room(sum + r.files); err != nil {
		return err
	}
	for len(r.want) > 0 {
		if _, err := r.content(io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// content puts the next entry, a content that is wanted, into the batch, and
// copies it.
func (r *reader) content(also io.Writer) (digest blob.Digest, err error) {
	h, err := r.next()
	if err != nil {
		return digest, err
	}
	name, ok := strings.CutPrefix(h.Name, blobFolder)
	if !ok {
		return digest, errNotWhole("where contents should be there is %.100q", h.Name)
	}
	if err := digest.UnmarshalText([]byte(name)); err != nil {
		return digest, errNotWhole("it holds %.100q", h.Name).WithCause(err)
	}
	size, wanted := r.want[digest]
	if !wanted || size != h.Size {
		return digest, errNotWhole("nothing needs its content %.20s…", name)
	}
	ref, err := r.batch.Put(io.TeeReader(r.in, also))
	switch {
	case err != nil && fault.KindOf(err) != fault.Internal:
		return digest, err
	case err != nil:
		return digest, errNotWhole("it cannot be read to its end").WithCause(err)
	case ref.Digest != digest:
		return digest, errNotWhole("the content %.20s… is not what it was", name)
	}
	delete(r.want, digest)
	r.got[digest] = ref
	return digest, nil
}

// readEnd reads the archive's end, and puts into the head how contents are kept
// here.
func (r *reader) readEnd() error {
	var end trailer
	if err := r.json(endName, slack, &end); err != nil {
		return err
	}
	if end.Blobs != len(r.got) {
		return errNotWhole("its end does not fit")
	}
	if _, err := r.in.Next(); !errors.Is(err, io.EOF) {
		return errNotWhole("something follows its end").WithCause(err)
	}
	r.bytes.Left = slack
	if _, err := io.Copy(io.Discard, r.bytes); err != nil { // the checksum comes last
		return errNotWhole("its end is missing, or something follows it").WithCause(err)
	}
	c := &r.head.Checkpoint
	for name, ref := range maps.Clone(c.Trees) {
		c.Trees[name] = r.got[ref.Digest]
	}
	for runtime, in := range maps.Clone(c.Interpreters) {
		in.Layers = slices.Clone(in.Layers)
		for k, ref := range in.Layers {
			in.Layers[k] = r.got[ref.Digest]
		}
		c.Interpreters[runtime] = in
	}
	c.Record, c.Variables, c.Files = nil, nil, nil
	return nil
}

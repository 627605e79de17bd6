package session

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
	"paddock/internal/workspace"
)

const (
	// blockBytes is what any content counts at least towards what an owner may
	// have, as files do.
	blockBytes = 4 << 10
	// entryBytes is what tar puts around a content, at most, and archiveSlack what
	// an archive has besides its contents.
	entryBytes   = 4 << 10
	archiveSlack = 64 << 10
	// maxInterpreters and maxState bound what an archive says of interpreters;
	// sandbox.Snapshot.State has 64 KiB at most.
	maxInterpreters = 16
	maxState        = 64 << 10
)

// unpacking reads an archive that may come from anywhere: nothing in it is
// believed, and nothing of it is taken before it is known to be wanted and to
// fit. What it put into the batch is not synced.
type unpacking struct {
	m     *Manager
	owner Owner
	batch *blob.Batch
	bytes *bounded // what tar reads
	in    *tar.Reader

	a     archive
	want  map[blob.Digest]int64 // the sizes of the contents that are missing
	got   map[blob.Digest]blob.Ref
	files int64 // what the files will take
}

func (m *Manager) readArchive(ctx context.Context, owner Owner, batch *blob.Batch, r io.Reader) (archive, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(archiveWindow))
	if err != nil {
		return archive{}, err
	}
	defer z.Close()
	u := &unpacking{m: m, owner: owner, batch: batch, want: map[blob.Digest]int64{}, got: map[blob.Digest]blob.Ref{}}
	u.bytes = &bounded{ctx, z, maxHead + archiveSlack}
	u.in = tar.NewReader(u.bytes)
	for _, step := range []func() error{u.head, u.lists, u.contents, u.end} {
		if err := step(); err != nil {
			if ended := context.Cause(ctx); ended != nil {
				err = ended
			}
			return archive{}, err
		}
	}
	return u.a, nil
}

// next gives the next entry, which must be an ordinary file.
func (u *unpacking) next() (*tar.Header, error) {
	h, err := u.in.Next()
	if err != nil {
		return nil, errArchive("it ends too early, or cannot be read").WithCause(err)
	}
	if h.Typeflag != tar.TypeReg || h.Size < 0 {
		return nil, errArchive("it holds %.100q", h.Name)
	}
	return h, nil
}

// readJSON reads the entry whose header was read.
func (u *unpacking) readJSON(h *tar.Header, name string, most int64, v any) error {
	if h.Name != name || h.Size > most {
		return errArchive("%s is not where it should be, or too long", name)
	}
	data, err := io.ReadAll(u.in)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return errArchive("%s cannot be read", name).WithCause(err)
	}
	return nil
}

// head reads what the archive says of itself.
func (u *unpacking) head() error {
	h, err := u.next()
	if err == nil {
		err = u.readJSON(h, archiveHead, maxHead, &u.a)
	}
	if err != nil {
		return err
	}
	if u.a.Format != archiveFormat {
		return fault.New(fault.Unsupported, "the archive has the format %d, and this paddock knows %d", u.a.Format, archiveFormat).WithHint("update paddock")
	}
	c := &u.a.Checkpoint
	for name := range c.Trees {
		if name != workspaceFolder && name != tmpFolder {
			return errArchive("it names the folder %.100q", name)
		}
	}
	if len(c.Interpreters) > maxInterpreters {
		return errArchive("it names %d interpreters", len(c.Interpreters))
	}
	for runtime, in := range c.Interpreters {
		if len(in.State) > maxState || len(in.Layers) > mostLayers {
			return errArchive("what it says of %.100q is too long", runtime)
		}
		// What was at hand where it came from is not here.
		if in.Mark, in.Anew = "", true; in.Memory < 0 || in.Memory > u.m.config.MemoryBytes {
			in.Memory = 0
		}
		c.Interpreters[runtime] = in
	}
	// As JSON that is written here it may be longer.
	if data, err := json.Marshal(c.Interpreters); err != nil || len(data) > maxHead {
		return errArchive("what it says of interpreters is too long").WithCause(err)
	}
	return nil
}

// maxTree is what a tree of a session may take.
func (m *Manager) maxTree(name string) int64 {
	if name == tmpFolder {
		return m.config.DiskBytes / 4
	}
	return m.config.DiskBytes
}

// lists reads the lists of files, which say what else is wanted.
func (u *unpacking) lists() error {
	c := &u.a.Checkpoint
	for _, ref := range c.Trees {
		if ref.Size > maxListing {
			return errArchive("its list of files is too long")
		}
		if err := u.wants(ref); err != nil {
			return err
		}
	}
	u.bytes.left += int64(len(u.want)) * (maxListing + entryBytes)
	lists := map[blob.Digest]*workspace.Listing{}
	for len(u.want) > 0 {
		h, err := u.next()
		if err != nil {
			return err
		}
		var data bytes.Buffer
		digest, err := u.content(h, &data)
		if err != nil {
			return err
		}
		if lists[digest], err = u.list(digest, data.Bytes()); err != nil {
			return err
		}
	}
	for _, list := range lists {
		for ref := range list.Refs() {
			if err := u.wants(ref); err != nil {
				return err
			}
		}
	}
	for _, in := range c.Interpreters {
		for _, ref := range in.Layers {
			if err := u.wants(ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// list decodes a list, for each tree that it is of.
func (u *unpacking) list(digest blob.Digest, data []byte) (list *workspace.Listing, err error) {
	for name, ref := range u.a.Checkpoint.Trees {
		if ref.Digest != digest {
			continue
		}
		limit := u.m.maxTree(name)
		list, err = workspace.ReadListing(data, limit)
		if fault.KindOf(err) == fault.Exhausted {
			return nil, fault.New(fault.Exhausted, "the session's files take more than the %d MiB that are allowed", limit>>20).
				WithHint("who runs the server can raise sessions.max_disk_mb").WithCause(err)
		}
		if err != nil {
			return nil, errArchive("its list of files cannot be read").WithCause(err)
		}
		u.files += list.DiskBytes()
	}
	return list, nil
}

// wants notes that a content is needed.
func (u *unpacking) wants(ref blob.Ref) error {
	if there, ok := u.got[ref.Digest]; ok {
		if there.Size != ref.Size {
			return errArchive("it does not agree on the size of a content")
		}
		return nil
	}
	if size, ok := u.want[ref.Digest]; ref.Size < 0 || ok && size != ref.Size {
		return errArchive("it does not agree on the size of a content")
	}
	if ref.Size > u.m.config.OwnerDiskBytes {
		return u.m.errTooMuch()
	}
	u.want[ref.Digest] = ref.Size
	return nil
}

// contents reads all that is missing, if there is room for it.
func (u *unpacking) contents() error {
	sum := int64(0)
	for _, size := range u.want {
		if sum += max(size, blockBytes); sum > u.m.config.OwnerDiskBytes {
			return u.m.errTooMuch()
		}
		u.bytes.left += size + entryBytes
	}
	if err := u.m.checkDisk(u.owner, sum+u.files); err != nil {
		return err
	}
	for len(u.want) > 0 {
		h, err := u.next()
		if err != nil {
			return err
		}
		if _, err := u.content(h, io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// content puts one that is wanted into the batch, and copies it.
func (u *unpacking) content(h *tar.Header, also io.Writer) (digest blob.Digest, err error) {
	name, ok := strings.CutPrefix(h.Name, blobFolder)
	if !ok {
		return digest, errArchive("where contents should be there is %.100q", h.Name)
	}
	if err := digest.UnmarshalText([]byte(name)); err != nil {
		return digest, errArchive("it holds %.100q", h.Name).WithCause(err)
	}
	size, wanted := u.want[digest]
	if !wanted || size != h.Size {
		return digest, errArchive("nothing needs its content %.20s…", name)
	}
	ref, err := u.batch.Put(io.TeeReader(u.in, also))
	switch {
	case err != nil && fault.KindOf(err) != fault.Internal:
		return digest, err
	case err != nil:
		return digest, errArchive("it cannot be read to its end").WithCause(err)
	case ref.Digest != digest:
		return digest, errArchive("the content %.20s… is not what it was", name)
	}
	delete(u.want, digest)
	u.got[digest] = ref
	return digest, nil
}

// end reads the archive's end, and puts into the head how contents are kept here.
func (u *unpacking) end() error {
	h, err := u.next()
	var end ending
	if err == nil {
		err = u.readJSON(h, archiveEnd, archiveSlack, &end)
	}
	if err != nil {
		return err
	}
	if end.Blobs != len(u.got) {
		return errArchive("its end does not fit")
	}
	if _, err := u.in.Next(); !errors.Is(err, io.EOF) {
		return errArchive("something follows its end").WithCause(err)
	}
	u.bytes.left = archiveSlack
	if _, err := io.Copy(io.Discard, u.bytes); err != nil { // the checksum comes last
		return errArchive("its end is missing, or something follows it").WithCause(err)
	}
	c := &u.a.Checkpoint
	for name, ref := range maps.Clone(c.Trees) {
		c.Trees[name] = u.got[ref.Digest]
	}
	for runtime, in := range maps.Clone(c.Interpreters) {
		in.Layers = slices.Clone(in.Layers)
		for k, ref := range in.Layers {
			in.Layers[k] = u.got[ref.Digest]
		}
		c.Interpreters[runtime] = in
	}
	c.Record, c.Variables, c.Files = nil, nil, nil
	return nil
}

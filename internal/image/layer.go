package image

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
)

// source is an image that is to be put into the store.
type source struct {
	config []byte // its configuration, which names the layers' digests
	digest string // what pins it where it comes from; empty: nothing does
	layers []layer
}

// layer is one of a source.
type layer struct {
	digest string // of the tar, not compressed; empty: not known yet
	size   int64  // what open gives; 0: not known
	open   func(context.Context) (io.ReadCloser, error)
}

// maxWindow bounds the memory that unpacking a layer takes: zstd --ultra has
// windows as large.
const maxWindow = 128 << 20

// tries is how often a layer is asked for whose connection breaks.
const tries = 3

// addLayer unpacks a layer unless it is there, or is being unpacked by another
// process, which it waits for. It gives what the layer takes.
func (s *Store) addLayer(ctx context.Context, l layer, room *room, p *meter) (contents, error) {
	unlock, err := lock.AcquireIn(ctx, s.path(locksFolder, hexOf(l.digest)))
	if err != nil {
		if ctx.Err() != nil {
			return contents{}, context.Cause(ctx)
		}
		return contents{}, blob.Explain(err, "locking a layer")
	}
	defer unlock()
	var c contents
	err = readJSON(filepath.Join(s.layer(l.digest), layerFile), &c)
	if err == nil {
		p.skip(l.size)
		return c, room.add(c)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	for n := 1; ; n++ {
		u, err := s.unpackLayer(ctx, l, room, p)
		if err == nil {
			return u.contents, u.keep()
		}
		if n == tries || fault.KindOf(err) != fault.Unavailable || ctx.Err() != nil {
			return c, err
		}
	}
}

// unpacked is a layer that was unpacked and not put into its place yet.
type unpacked struct {
	contents
	store  *Store
	dir    string
	digest string
}

// unpackLayer unpacks a layer into a folder of its own, which is gone again after
// an error.
func (s *Store) unpackLayer(ctx context.Context, l layer, room *room, p *meter) (_ *unpacked, err error) {
	u := &unpacked{store: s, dir: s.path(tempFolder, rand.Text())}
	tree := filepath.Join(u.dir, treeFolder)
	if err := os.MkdirAll(tree, 0o700); err != nil {
		return nil, blob.Explain(err, "unpacking an image")
	}
	mine := room.share()
	packed := &watched{ctx: ctx, meter: p}
	defer func() {
		if err != nil {
			mine.giveBack()
			p.back(packed.read)
			_ = os.RemoveAll(u.dir) // or the next sweep does
		}
	}()
	if err := os.Chmod(tree, 0o755); err != nil { // whatever the umask is
		return nil, blob.Explain(err, "unpacking an image")
	}
	body, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	defer context.AfterFunc(ctx, func() { body.Close() })()
	packed.in = body
	in, done, err := decompress(packed)
	if err != nil {
		return nil, packed.explain(err)
	}
	defer done()
	sum := sha256.New()
	text := io.TeeReader(&marked{room.bound(in)}, sum)
	if u.contents, err = unpack(ctx, tree, text, mine); err != nil {
		return nil, packed.explain(err)
	}
	if _, err = io.Copy(io.Discard, text); err != nil { // what stands behind the end mark counts in the digest
		return nil, packed.explain(err)
	}
	u.digest = digestPrefix + hex.EncodeToString(sum.Sum(nil))
	if l.digest != "" && u.digest != l.digest {
		return nil, errImage("a layer is not what its digest says")
	}
	return u, nil
}

// keep puts a layer into its place, once it is on the disk.
func (u *unpacked) keep() error {
	err := writeJSON(filepath.Join(u.dir, layerFile), u.contents)
	if err == nil {
		err = u.store.settle(u.dir, u.store.layer(u.digest))
	}
	if err != nil {
		_ = os.RemoveAll(u.dir) // or the next sweep does
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // the same is there by another way
	}
	return err
}

// settle gives a folder its place when all that is in it has reached the disk, so
// that there is never a part of it there. fs.ErrExist: something is there.
func (s *Store) settle(dir, place string) error {
	if err := syncAll(dir); err != nil {
		return blob.Explain(err, "keeping an image")
	}
	if _, err := os.Lstat(place); err == nil {
		return fs.ErrExist
	}
	if err := os.Rename(dir, place); err != nil {
		return blob.Explain(err, "keeping an image")
	}
	return blob.Explain(blob.OS.SyncDir(filepath.Dir(place)), "keeping an image")
}

// decompress reads what may be compressed with gzip or zstd. done has to be called
// at the end.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch kindOf(magic) {
	case packedGzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		return z, func() { z.Close() }, nil
	case packedZstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		return z, z.Close, nil
	case packedOther:
		return nil, nil, fault.New(fault.Unsupported, "it is compressed with xz or bzip2").WithHint("compress it with gzip or zstd, or not at all")
	}
	return in, func() {}, nil
}

// What a file begins with.
const (
	plain = iota
	packedGzip
	packedZstd
	packedOther
)

func kindOf(magic []byte) int {
	begins := func(s string) bool { return len(magic) >= len(s) && string(magic[:len(s)]) == s }
	switch {
	case begins("\x1f\x8b"):
		return packedGzip
	case begins("\x28\xb5\x2f\xfd"):
		return packedZstd
	case begins("\xfd7zXZ\x00"), begins("BZh"):
		return packedOther
	}
	return plain
}

// marked says of what cannot be decompressed that it is broken.
type marked struct{ in io.Reader }

// Read implements [io.Reader].
func (m *marked) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	var f *fault.Error
	if err == nil || err == io.EOF || errors.As(err, &f) || errors.Is(err, errBroken) {
		return n, err
	}
	return n, fmt.Errorf("%w: %w", errBroken, err)
}

// watched counts what comes, and remembers why no more does.
type watched struct {
	in    io.Reader
	ctx   context.Context
	meter *meter
	read  int64
	err   error
}

// Read implements [io.Reader].
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.read += int64(n)
	w.meter.add(int64(n))
	if err != nil && err != io.EOF {
		w.err = err
		err = fmt.Errorf("%w: %w", errBroken, err)
	}
	return n, err
}

// explain says why a layer could not be had. A fault that came of reading it is
// not the image's when the reading itself went wrong.
func (w *watched) explain(err error) error {
	switch {
	case w.ctx.Err() != nil:
		return context.Cause(w.ctx)
	case w.err != nil:
		return explainRead(w.err)
	case errors.Is(err, errBroken) && fault.KindOf(err) == fault.Internal:
		return errImage("a layer cannot be decompressed").WithCause(err)
	}
	return err
}

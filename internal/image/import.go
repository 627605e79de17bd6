package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// Import takes an image from a file or folder: what docker save wrote, an OCI
// layout (a folder, or a tar of one), or the tar of a root file system. Tars may be
// compressed with gzip or zstd. It is called so then; progress may be nil. After
// an error there is what there was before.
func (s *Store) Import(ctx context.Context, file, called string, progress func(Progress)) (Image, error) {
	ref, err := parse(called)
	if err != nil {
		return Image{}, err
	}
	if _, pinned := ref.(name.Digest); pinned {
		return Image{}, fault.New(fault.Invalid, "an import cannot be called by a digest").WithHint("give it a name such as tools:1")
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Image{}, fault.New(fault.NotFound, "there is no file %q", file)
	case err != nil:
		return Image{}, fault.New(fault.Unavailable, "%s cannot be read", file).WithCause(err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return Image{}, fault.New(fault.Invalid, "%s is not an ordinary file", file).WithHint("save what it gives to a file first")
	}
	lock, err := s.adding(ctx)
	if err != nil {
		return Image{}, err
	}
	defer lock.Close()
	m := newMeter(progress)
	if !info.IsDir() {
		return s.importFile(ctx, file, full(ref), m)
	}
	f, err := openFolder(file)
	if err != nil {
		return Image{}, err
	}
	defer f.root.Close()
	src, err := imageOf(f)
	if err != nil {
		return Image{}, err
	}
	return s.add(ctx, full(ref), src, m)
}

func (s *Store) importFile(ctx context.Context, file, called string, m *meter) (Image, error) {
	f, err := os.Open(file)
	if err != nil {
		return Image{}, fault.New(fault.Unavailable, "%s cannot be read", file).WithCause(err)
	}
	defer f.Close()
	f, err = s.expand(ctx, f)
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	a, isImage, err := readArchive(ctx, f)
	if err != nil {
		return Image{}, err
	}
	if !isImage {
		return s.importTree(ctx, f, called, m)
	}
	src, err := imageOf(a)
	if err != nil {
		return Image{}, err
	}
	return s.add(ctx, called, src, m)
}

// expand gives a file that is not compressed: f itself, or a copy that goes when
// it is closed.
func (s *Store) expand(ctx context.Context, f *os.File) (*os.File, error) {
	magic := make([]byte, 6)
	n, err := f.ReadAt(magic, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, blob.Explain(err, "reading an image")
	}
	if kindOf(magic[:n]) == plain {
		return f, nil
	}
	in, done, err := decompress(f)
	if err != nil {
		return nil, explainEntry(nil, err)
	}
	defer done()
	path := s.path(tempFolder, rand.Text())
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, blob.Explain(err, "reading an image")
	}
	_ = os.Remove(path) // it lives for as long as it is open
	room := &room{maxBytes: s.config.Bytes, maxEntries: s.config.Entries}
	_, err = io.Copy(out, iolimit.WithContext(ctx, &marked{room.bound(in)}))
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		out.Close()
		return nil, explainEntry(nil, err)
	}
	return out, nil
}

// importTree takes the tar of a root file system as an image of one layer that
// says nothing of itself.
func (s *Store) importTree(ctx context.Context, f *os.File, called string, m *meter) (Image, error) {
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Image{}, blob.Explain(err, "reading an image")
	}
	tree := layer{size: info.Size(), open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(f), nil }}
	m.begin([]layer{tree})
	u, err := s.unpackLayer(ctx, tree, &room{maxBytes: s.config.Bytes, maxEntries: s.config.Entries}, m)
	if err != nil {
		return Image{}, err
	}
	if u.Entries == 0 {
		_ = os.RemoveAll(filepath.Join(u.dir)) // or the next sweep does
		return Image{}, errImage("there is nothing in it")
	}
	if err := u.keep(); err != nil {
		return Image{}, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{u.digest}},
	})
	if err != nil {
		return Image{}, err
	}
	tree.digest, tree.size = u.digest, 0
	return s.add(ctx, called, &source{config: config, layers: []layer{tree}}, newMeter(nil))
}

package files

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// Bounds of an archive that is unpacked, besides the workspace's disk limit.
const (
	maxEntries = workspace.MaxFiles
	// maxRatio is how much larger the files may be than what was sent, beyond the
	// first freeBytes: texts are packed to a twentieth, a bomb to a thousandth.
	maxRatio, freeBytes = 200, 8 << 20
	// maxZip bounds a zip, whose table of contents stands at its end, and
	// maxTable that: it is read into memory.
	maxZip, maxTable = 256 << 20, 8 << 20
)

// unpack puts every file of an archive in place, or none. What kind it is,
// tar, tar.gz or zip, shows in its first bytes.
func (t target) unpack(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	if err := checkUpload(r); err != nil {
		return err
	}
	stage, err := tree.Stage()
	if err != nil {
		return err
	}
	defer stage.Close()
	u := &unpacker{stage: stage}
	if err := u.unpack(body{r.Context(), r.Body}); err != nil {
		return damaged(err)
	}
	if err := stage.Commit(nil); err != nil {
		return err
	}
	answer(w, r, http.StatusOK, map[string]int64{"files": int64(u.files), "bytes": u.bytes})
	return nil
}

// damaged blames the archive for what is nobody else's fault.
func damaged(err error) error {
	var known *fault.Error
	var own broken
	if errors.As(err, &known) || errors.As(err, &own) {
		return err
	}
	return fault.New(fault.Invalid, "the archive is damaged, or none").WithHint("send a tar, tar.gz or zip").WithCause(err)
}

// unpacker takes an archive apart.
type unpacker struct {
	stage   *workspace.Stage
	entries int
	files   int
	bytes   int64 // of all files
	packed  int64 // what they came from, so far
}

func (u *unpacker) unpack(src io.Reader) error {
	in := bufio.NewReader(counted{src, &u.packed})
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("PK\x03\x04")), bytes.HasPrefix(magic, []byte("PK\x05\x06")):
		return u.zip(in)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		return u.tar(plain)
	}
	return u.tar(in)
}

func (u *unpacker) tar(src io.Reader) error {
	for in := tar.NewReader(src); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if u.entries == 0 {
				return errors.New("an empty archive")
			}
			_, err = io.Copy(io.Discard, u.bounded(src)) // what follows has to be whole as well
			return err
		}
		if err != nil {
			return err
		}
		mode := h.FileInfo().Mode()
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeXGlobalHeader:
			continue
		default:
			mode |= fs.ModeIrregular // a hard link looks like a file
		}
		if err := u.add(h.Name, mode, in); err != nil {
			return err
		}
	}
}

func (u *unpacker) zip(src io.Reader) error {
	file, size, err := u.stage.Spool(&io.LimitedReader{R: src, N: maxZip + 1})
	if err != nil {
		return err
	}
	defer file.Close()
	if size > maxZip {
		return refusal{fault.New(fault.Exhausted, "the zip is larger than %d bytes", maxZip).WithHint("send a tar.gz"), http.StatusRequestEntityTooLarge}
	}
	table := &readAt{ReaderAt: file, left: maxTable}
	in, err := zip.NewReader(table, size)
	if err != nil {
		return err
	}
	table.left = 1 << 62
	for _, f := range in.File {
		content, err := f.Open()
		if err == nil {
			err = errors.Join(u.add(f.Name, f.Mode(), content), content.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add takes one entry. Folders are made when there is a file in them.
func (u *unpacker) add(name string, mode fs.FileMode, src io.Reader) error {
	if u.entries++; u.entries > maxEntries {
		return refusal{fault.New(fault.Exhausted, "the archive has more than %d entries", maxEntries).WithHint("send several"), http.StatusRequestEntityTooLarge}
	}
	if mode.IsDir() && path.Clean(name) == "." {
		return nil
	}
	if strings.HasPrefix(name, "/") {
		return fault.New(fault.Denied, "the archive holds an absolute path").WithHint("pack it with relative names")
	}
	if _, err := workspace.Clean(name); err != nil {
		return err
	}
	switch {
	case mode.IsDir():
		return nil
	case !mode.IsRegular():
		return fault.New(fault.Denied, "the archive holds a link or a device").WithHint("pack plain files only; tar --dereference --hard-dereference packs what links lead to")
	}
	n, err := u.stage.Add(name, u.bounded(src), plainMode(mode))
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	u.files++
	u.bytes += n
	return nil
}

// bounded counts what comes out of the archive, and ends a bomb.
func (u *unpacker) bounded(src io.Reader) io.Reader { return &bomb{src, u, 0} }

type bomb struct {
	io.Reader
	of *unpacker
	n  int64
}

func (b *bomb) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.n += int64(n)
	if sum := b.of.bytes + b.n; sum > freeBytes && sum/maxRatio > b.of.packed {
		return n, refusal{fault.New(fault.Exhausted, "the archive unpacks to more than %d times its size", maxRatio).WithHint("send such files one by one"), http.StatusRequestEntityTooLarge}
	}
	return n, err
}

// counted adds up what is read.
type counted struct {
	io.Reader
	sum *int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.sum += int64(n)
	return n, err
}

// readAt reads so much and no more.
type readAt struct {
	io.ReaderAt
	left int64
}

func (r *readAt) ReadAt(p []byte, at int64) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		return 0, refusal{fault.New(fault.Exhausted, "the zip's table of contents is too large").WithHint("send several archives, or a tar.gz"), http.StatusRequestEntityTooLarge}
	}
	return r.ReaderAt.ReadAt(p, at)
}

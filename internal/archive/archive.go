// Package archive reads archives that come from anywhere, entry by entry: tar,
// tar.gz and zip. It bounds what they unpack to; nothing is written, and what
// entries are called is for the receiver to judge.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// Excess is the error for an archive that is more than the limits allow. It
// wraps a fault.Exhausted.
type Excess struct{ fault *fault.Error }

func (e Excess) Error() string { return e.fault.Error() }

// Unwrap leads to the fault.
func (e Excess) Unwrap() error { return e.fault }

func excess(hint, format string, args ...any) error {
	return Excess{fault.New(fault.Exhausted, format, args...).WithHint("%s", hint)}
}

// Limits are what an archive may take. The zero Limits allow nothing.
type Limits struct {
	// Entries bounds their number.
	Entries int
	// Ratio is how much larger what is unpacked may be than what it came from,
	// beyond the first Free bytes: texts are packed to a twentieth, a bomb to a
	// thousandth.
	Ratio, Free int64
	// Zip bounds a zip, whose table of contents stands at its end, and Table
	// that, which is read into memory; both in bytes.
	Zip, Table int64
}

// File is a zip that is being read.
type File interface {
	io.ReaderAt
	io.Closer
}

// Receiver takes an archive. Its functions are called one after the other.
type Receiver struct {
	// Entry takes an entry: its name as it stands in the archive, what it is, and
	// its content, of which it may leave a rest. Whatever is not a plain file and no
	// folder has a mode that says so, hard links included. An error ends it all.
	Entry func(name string, mode fs.FileMode, content io.Reader) error
	// Spool keeps a zip until it is closed, and gives its size; nil: there are none.
	Spool func(io.Reader) (File, int64, error)
	// Comment takes what a tar says of itself as a whole, as git does with the
	// commit; nil: nobody is interested.
	Comment func(text string)
}

// Read reads an archive to its end. What kind it is shows in its first bytes.
// Errors of the receiver's are passed on; an [Excess] says that there is too much,
// and any other error that the archive is damaged, or none.
func Read(src io.Reader, limits Limits, to Receiver) error {
	u := &unpacker{limits: limits, to: to}
	in := bufio.NewReader(iolimit.Watch(src, func(n int) error {
		u.packed += int64(n)
		return nil
	}))
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("PK\x03\x04")), bytes.HasPrefix(magic, []byte("PK\x05\x06")):
		return u.zip(in)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := newMembers(in)
		if err != nil {
			return err
		}
		return u.tar(plain)
	}
	return u.tar(in)
}

// members reads what gzip packed, in as many parts as there are. What follows them that is
// none is left out, as gzip and zlib do: files are padded to a block's size.
type members struct {
	in *bufio.Reader
	z  *gzip.Reader
}

func newMembers(in *bufio.Reader) (*members, error) {
	z, err := gzip.NewReader(in)
	if err == nil {
		z.Multistream(false)
	}
	return &members{in, z}, err
}

// Read implements [io.Reader].
func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.z.Read(p)
		if n > 0 && errors.Is(err, io.EOF) {
			err = nil // the next one sees it again
		}
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		magic, err := m.in.Peek(2)
		if err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
			if err == nil || errors.Is(err, io.EOF) {
				_, err = io.Copy(io.Discard, m.in)
			}
			return 0, cmp.Or(err, io.EOF)
		}
		if err := m.z.Reset(m.in); err != nil {
			return 0, err
		}
		m.z.Multistream(false)
	}
}

// unpacker takes an archive apart.
type unpacker struct {
	limits   Limits
	to       Receiver
	entries  int
	packed   int64 // what was read of the archive, so far
	raw      int64 // what came out of a tar's compression, headers and what is skipped included
	unpacked int64 // what came out of contents: more than raw, where a tar has holes
}

func (u *unpacker) tar(src io.Reader) error {
	src = u.bomb(src, &u.raw)
	for in := tar.NewReader(src); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if u.entries == 0 {
				return errors.New("bundle: an empty archive") // as any file of zeros is
			}
			_, err = io.Copy(io.Discard, src) // what follows has to be whole as well
			return err
		}
		if err != nil {
			return err
		}
		mode := h.FileInfo().Mode()
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeXGlobalHeader:
			if text := h.PAXRecords["comment"]; text != "" && u.to.Comment != nil {
				u.to.Comment(text)
			}
			continue
		default:
			mode |= fs.ModeIrregular // a hard link looks like a file
		}
		if err := u.entry(h.Name, mode, u.bomb(in, &u.unpacked)); err != nil {
			return err
		}
	}
}

func (u *unpacker) zip(src io.Reader) error {
	if u.to.Spool == nil {
		return errors.New("bundle: a zip is not wanted here")
	}
	file, size, err := u.to.Spool(&io.LimitedReader{R: src, N: u.limits.Zip + 1})
	if err != nil {
		return err
	}
	defer file.Close()
	if size > u.limits.Zip {
		return excess("send a tar.gz", "the zip is larger than %d bytes", u.limits.Zip)
	}
	table := &iolimit.ReaderAt{R: file, Left: u.limits.Table, Over: excess("send several archives, or a tar.gz", "the zip's table of contents is too large")}
	in, err := zip.NewReader(table, size)
	if err != nil {
		return err
	}
	table.Left = 1 << 62
	for _, f := range in.File {
		content, err := f.Open()
		if err == nil {
			err = errors.Join(u.entry(f.Name, f.Mode(), u.bomb(content, &u.unpacked)), content.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) entry(name string, mode fs.FileMode, content io.Reader) error {
	if u.entries++; u.entries > u.limits.Entries {
		return excess("send several", "the archive has more than %d entries", u.limits.Entries)
	}
	return u.to.Entry(name, mode, content)
}

// bomb adds what comes out of an archive to sum, and ends an archive that becomes too large.
func (u *unpacker) bomb(r io.Reader, sum *int64) io.Reader {
	return iolimit.Watch(r, func(n int) error {
		*sum += int64(n)
		if *sum > u.limits.Free && *sum/max(u.limits.Ratio, 1) > u.packed {
			return excess("send such files one by one", "the archive unpacks to more than %d times its size", u.limits.Ratio)
		}
		return nil
	})
}

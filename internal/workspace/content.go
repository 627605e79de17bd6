package workspace

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"sort"
	"strings"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

const (
	// MaxRead bounds what one Read gives.
	MaxRead = 1 << 20
	// MaxText bounds the files that are edited, searched and whose lines are
	// all counted.
	MaxText = 16 << 20
	// sniffBytes is how much of a file decides whether it is text.
	sniffBytes = 64 << 10
)

// Range is a part of a file.
type Range struct {
	// Offset is the first line of a text, counted from 1 (0 is the first as
	// well), or the number of bytes to skip in anything else.
	Offset int64
	// Limit is how many lines or bytes; zero: as many as MaxRead holds.
	Limit int64
	// Bytes makes a text count in bytes too.
	Bytes bool
}

// Content is a part of a file.
type Content struct {
	File
	Data []byte
	// Text tells that Data is UTF-8 and was counted in lines, or would have
	// been but for Range.Bytes.
	Text bool
	// FirstLine and Lines say which lines Data holds; zero when bytes were counted.
	FirstLine, Lines int64
	// TotalLines is how many there are; zero when bytes were counted or the
	// file is larger than 16 MiB.
	TotalLines int64
	// Offset is where Data begins, in bytes.
	Offset int64
	// More tells that there is something after Data.
	More bool
}

// Read gives a part of a file, MaxRead bytes at most. Whether a file is text
// is decided by its first 64 KiB: valid UTF-8 without NUL.
func (t *Tree) Read(name string, r Range) (Content, error) {
	if r.Offset < 0 || r.Limit < 0 {
		return Content{}, fault.New(fault.Invalid, "offset and limit are not negative")
	}
	p, err := Clean(name)
	if err != nil {
		return Content{}, err
	}
	f, info, err := t.open(p)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	head := make([]byte, min(sniffBytes, max(info.Size(), 1)))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Content{}, explain(err, p)
	}
	c := Content{File: fileOf(p, info), Text: isText(head[:n], int64(n) < info.Size())}
	if c.Text && !r.Bytes {
		err = c.readLines(f, r)
	} else {
		err = c.readBytes(f, r)
	}
	return c, explain(err, p)
}

// ReadAll gives a whole file; one of more than limit bytes is a fault.Exhausted.
func (t *Tree) ReadAll(name string, limit int64) (Content, error) {
	p, err := Clean(name)
	if err != nil {
		return Content{}, err
	}
	f, info, err := t.open(p)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	data, err := iolimit.ReadAll(f, limit, fault.New(fault.Exhausted, "%s is larger than %d bytes", p, limit).WithHint("read a part of it"))
	if err != nil {
		return Content{}, explain(err, p)
	}
	return Content{File: fileOf(p, info), Data: data, Text: isText(data, false)}, nil
}

// open opens a regular file for reading and nothing else, and never waits.
func (t *Tree) open(p string) (*os.File, fs.FileInfo, error) {
	info, err := t.root().Stat(p)
	if err != nil {
		return nil, nil, explain(err, p)
	}
	if err := regular(info, p); err != nil {
		return nil, nil, err
	}
	f, err := t.root().OpenFile(p, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, explain(err, p)
	}
	if info, err = f.Stat(); err == nil {
		err = regular(info, p)
	}
	if err != nil {
		f.Close()
		return nil, nil, explain(err, p)
	}
	return f, info, nil
}

func (c *Content) readBytes(f *os.File, r Range) error {
	limit := int64(MaxRead)
	if r.Limit > 0 {
		limit = min(limit, r.Limit)
	}
	data, err := io.ReadAll(io.NewSectionReader(f, r.Offset, min(limit, max(0, c.Size-r.Offset))))
	c.Data, c.Offset = data, r.Offset
	c.More = r.Offset+int64(len(data)) < c.Size
	c.Text = c.Text && utf8.Valid(data)
	return err
}

// readLines goes through the file once, keeping what lies in the range.
func (c *Content) readLines(f *os.File, r Range) error {
	l := lines{content: c, first: max(r.Offset, 1), last: math.MaxInt64, line: 1}
	if r.Limit > 0 && r.Limit < math.MaxInt64-l.first {
		l.last = l.first + r.Limit - 1
	}
	piece := make([]byte, 64<<10)
	for src := io.NewSectionReader(f, 0, c.Size); ; {
		n, err := src.Read(piece)
		l.take(piece[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if (l.full || l.line > l.last) && c.Size > MaxText {
			break
		}
	}
	if c.Size <= MaxText {
		c.TotalLines = l.line
		if l.inLine == 0 {
			c.TotalLines--
		}
	}
	c.FirstLine = l.first
	c.More = len(c.Data) > 0 && c.Offset+int64(len(c.Data)) < c.Size
	c.Text = utf8.Valid(c.Data)
	return nil
}

// lines finds the lines first to last in what it takes piece by piece.
type lines struct {
	content     *Content
	first, last int64
	line, at    int64 // the line, and the offset, of the next byte
	inLine      int   // how much of that line has been taken
	full        bool  // there is no room for more
}

func (l *lines) take(piece []byte) {
	for len(piece) > 0 {
		part := piece
		if k := bytes.IndexByte(piece, '\n'); k >= 0 {
			part = piece[:k+1]
		}
		piece = piece[len(part):]
		if l.line >= l.first && l.line <= l.last && !l.full {
			l.keep(part)
		}
		l.at += int64(len(part))
		l.inLine += len(part)
		if part[len(part)-1] == '\n' {
			l.line++
			l.inLine = 0
		}
	}
}

// keep appends a part of a line, as much as there is room for.
func (l *lines) keep(part []byte) {
	c := l.content
	if c.Lines == 0 {
		c.Offset = l.at
	}
	if l.inLine == 0 {
		c.Lines++
	}
	room := MaxRead - len(c.Data)
	if l.full = len(part) > room; l.full {
		for room > 0 && !utf8.RuneStart(part[room]) {
			room--
		}
		part = part[:room]
	}
	c.Data = append(c.Data, part...)
}

// isText tells whether data is UTF-8 without NUL; cut means that it may end in
// the middle of a character.
func isText(data []byte, cut bool) bool {
	if bytes.IndexByte(data, 0) >= 0 {
		return false
	}
	for k := 0; cut && k < utf8.UTFMax-1 && len(data) > 0; k++ {
		if r, size := utf8.DecodeLastRune(data); r != utf8.RuneError || size != 1 {
			break
		}
		data = data[:len(data)-1]
	}
	return utf8.Valid(data)
}

// keepable is Clean of a path at which a file can be kept.
func keepable(name string) (string, error) {
	p, err := Clean(name)
	if err == nil && strings.Count(p, "/") >= maxDepth {
		return "", fault.New(fault.Invalid, "the path has more than %d folders", maxDepth)
	}
	return p, err
}

// Write puts data into a file, whole or not at all, and makes the folders on
// the way. What would go beyond the disk limit is a fault.Exhausted.
func (t *Tree) Write(name string, data []byte) (File, error) {
	p, err := keepable(name)
	if err != nil {
		return File{}, err
	}
	var f File
	err = t.change(func() (_ []string, err error) {
		f, err = t.writeLocked(p, bytes.NewReader(data), int64(len(data)))
		return []string{p}, err
	})
	if err != nil {
		return File{}, err
	}
	return f, nil
}

// Put is Write, of so many bytes that src has, for a caller who keeps what is there itself:
// Options.Keep is not told.
func (t *Tree) Put(name string, src io.Reader, size int64) (f File, err error) {
	p, err := keepable(name)
	if err != nil {
		return File{}, err
	}
	_, err = t.alone(func() (_ []string, err error) {
		f, err = t.writeLocked(p, src, size)
		return nil, err
	})
	return f, err
}

func (t *Tree) writeLocked(p string, src io.Reader, size int64) (File, error) {
	mode, old := fs.FileMode(0o644), int64(0)
	if info, err := t.root().Lstat(p); err == nil {
		if info.IsDir() {
			return File{}, regular(info, p)
		}
		if info.Mode().IsRegular() {
			mode = info.Mode().Perm()
		}
		old = weight(info)
	}
	growth := max(size, blockBytes) - old + t.missing(path.Dir(p))*blockBytes
	if err := t.roomLocked(growth, 1); err != nil {
		return File{}, err
	}
	if err := t.makeFolders(path.Dir(p)); err != nil {
		return File{}, err
	}
	temp := path.Join(path.Dir(p), tempPrefix+rand.Text())
	info, err := t.writeTemp(temp, src, size, mode)
	if err == nil {
		err = t.root().Rename(temp, p)
	}
	if err != nil {
		_ = t.root().Remove(temp) // it may not be there
		return File{}, explain(err, p)
	}
	t.used.Add(growth)
	if renamed, err := t.root().Lstat(p); err == nil {
		info = renamed // its time of change is another one
	}
	return fileOf(p, info), nil
}

// missing counts the folders that have to be made for dir to be there.
func (t *Tree) missing(dir string) (n int64) {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := t.root().Stat(dir); err == nil {
			break
		}
		n++
	}
	return n
}

func (t *Tree) writeTemp(name string, src io.Reader, size int64, mode fs.FileMode) (fs.FileInfo, error) {
	f, err := t.root().OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(f, src, size)
	if err == nil && t.options.UID != 0 {
		err = f.Chown(t.options.UID, t.options.GID)
	}
	info, statErr := f.Stat()
	return info, errors.Join(err, statErr, f.Close())
}

// makeFolders makes dir and what is missing above it. A lookup costs a step for each
// folder of its path: it makes few of them, and goes down from the last folder that is
// there.
func (t *Tree) makeFolders(dir string) error {
	if dir == "." {
		return nil
	}
	parts := strings.Split(dir, "/")
	above := func(n int) string { return cmp.Or(strings.Join(parts[:n], "/"), ".") }
	there := sort.Search(len(parts), func(n int) bool {
		_, err := t.root().Stat(above(n + 1))
		return err != nil
	})
	if there > 0 {
		switch info, err := t.root().Stat(above(there)); {
		case err != nil:
			return explain(err, dir)
		case !info.IsDir():
			return fault.New(fault.Invalid, "%s is a file and no folder", above(there))
		}
	}
	if there == len(parts) {
		return nil
	}
	at, err := t.root().OpenRoot(above(there))
	if err != nil {
		return explain(err, dir)
	}
	defer func() { _ = at.Close() }()
	for n, name := range parts[there:] {
		if err := t.makeFolder(at, name); err != nil {
			return explain(err, above(there+n+1))
		}
		next, err := at.OpenRoot(name)
		if err != nil {
			return explain(err, above(there+n+1))
		}
		_ = at.Close()
		at = next
	}
	return nil
}

// makeFolder makes one in a folder, unless it is there.
func (t *Tree) makeFolder(in *os.Root, name string) error {
	err := in.Mkdir(name, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err == nil && t.options.UID != 0:
		return in.Lchown(name, t.options.UID, t.options.GID)
	}
	return err
}

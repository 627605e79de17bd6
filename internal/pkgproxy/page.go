package pkgproxy

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"deps.dev/util/semver"

	"paddock/internal/fault"
)

// What an index says of a package is kept as a file of the cache that is read in parts,
// so that nobody who asks for a package holds all of its description: records (one of
// each version or file, as large as they are), lines (a [row] for each record, the oldest
// version first), a [pageHead], and the head's length in 16 hexadecimal digits.

// Bounds of a page. An index's answer that is more is an error.
const (
	// maxRows bounds what rows take in memory while a page is written, in bytes.
	maxRows = 8 << 20
	// rowCost is what one takes besides its texts.
	rowCost = 128
	// maxHead bounds a head, in bytes.
	maxHead = 512 << 10
	// headDigits is how many digits a head's length has.
	headDigits = 16
)

// pageHead says what a page is.
type pageHead struct {
	Key      string            `json:"key"`
	ETag     string            `json:"etag,omitempty"`
	Modified string            `json:"modified,omitempty"`
	Missing  bool              `json:"missing,omitempty"` // 404
	Tags     map[string]string `json:"tags,omitempty"`    // npm's
	Updated  string            `json:"updated,omitempty"` // npm's
	Lines    int64             `json:"lines"`             // where they begin
	End      int64             `json:"end"`               // where they end
	SHA256   string            `json:"sha256"`            // of all before the head
}

// row is what a page's lines say of a record.
type row struct {
	Version    string    `json:"v"`
	Name       string    `json:"n,omitempty"` // of a file
	Published  time.Time `json:"t,omitzero"`
	Deprecated bool      `json:"d,omitempty"`
	Local      bool      `json:"l,omitempty"` // of a folder: it has no age
	At         int64     `json:"a"`           // where its record is, and the sizes of its parts
	Parts      [3]int64  `json:"p"`
}

// pageWriter writes a page's records.
type pageWriter struct {
	f    *os.File
	out  *bufio.Writer
	at   int64
	rows []row
	held int
}

// add writes a record, of parts that can be read apart.
func (w *pageWriter) add(r row, parts ...[]byte) error {
	if w.held += rowCost + len(r.Version) + len(r.Name); w.held > maxRows {
		return errPageSize(maxRows)
	}
	r.At = w.at
	for k, part := range parts {
		n, err := w.out.Write(part)
		if w.at += int64(n); err != nil {
			return err
		}
		r.Parts[k] = int64(n)
	}
	w.rows = append(w.rows, r)
	return nil
}

func errPageSize(most int64) error {
	return fault.New(fault.Exhausted, "what the index of packages answers is larger than %d bytes", most).
		WithHint("the operator can look at what its index says of the package")
}

// finish writes the lines and the head.
func (w *pageWriter) finish(head pageHead, system semver.System) error {
	sortRows(w.rows, system)
	head.Lines = w.at
	for _, r := range w.rows {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		n, err := w.out.Write(append(line, '\n'))
		if w.at += int64(n); err != nil {
			return err
		}
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	head.End = w.at
	var err error
	if head.SHA256, err = sumOf(w.f, head.End); err != nil {
		return err
	}
	text, err := json.Marshal(head)
	if err == nil && len(text) > maxHead {
		err = errPageSize(maxHead)
	}
	if err == nil {
		_, err = fmt.Fprintf(w.f, "%s%0*x", text, headDigits, len(text))
	}
	return err
}

func sumOf(f *os.File, end int64) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(f, 0, end))
	if err == nil && n != end {
		err = io.ErrUnexpectedEOF
	}
	return hex.EncodeToString(sum.Sum(nil)), err
}

// sortRows sorts by versions and names. Each version is read once; what is none comes first.
func sortRows(rows []row, system semver.System) {
	parsed := map[string]*semver.Version{}
	for _, r := range rows {
		if _, ok := parsed[r.Version]; !ok {
			parsed[r.Version], _ = system.Parse(r.Version)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		order := 0
		switch x, y := parsed[a.Version], parsed[b.Version]; {
		case x != nil && y != nil:
			order = x.Compare(y)
		case x != nil:
			order = 1
		case y != nil:
			order = -1
		}
		return cmp.Or(order, strings.Compare(a.Version, b.Version), strings.Compare(a.Name, b.Name))
	})
}

// page is an index's answer. It holds an open file, which its user closes, and is for one
// goroutine.
type page struct {
	pageHead
	fetched time.Time
	file    *os.File
	info    fs.FileInfo
}

func pagePlace(key string) string {
	sum := sha256.Sum256([]byte(key))
	return pagesFolder + "/" + hex.EncodeToString(sum[:])
}

// pageKey is what a page is kept by; the number counts the ways to keep one.
func pageKey(accept, url string) string { return "2 " + accept + " " + url }

// openPage opens a page; nil: there is none. What is damaged is removed.
func (s *store) openPage(key string) *page {
	name := pagePlace(key)
	file, err := s.root.Open(name)
	if err != nil {
		return nil
	}
	p, err := readPage(file)
	if err == nil && p.Key != key {
		err = errors.New("pkgproxy: a page of another key")
	}
	if err == nil && !s.knows(name, p.info) {
		var sum string
		if sum, err = sumOf(file, p.End); err == nil && sum != p.SHA256 {
			err = errors.New("pkgproxy: a page that was changed")
		}
	}
	if err != nil {
		file.Close()
		s.drop(name)
		return nil
	}
	s.remember(name, p.info)
	return p
}

func readPage(file *os.File) (*page, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var digits [headDigits]byte
	if _, err := file.ReadAt(digits[:], info.Size()-headDigits); err != nil {
		return nil, err
	}
	size, err := strconv.ParseInt(string(digits[:]), 16, 64)
	at := info.Size() - headDigits - size
	if err != nil || size < 2 || size > maxHead || at < 0 {
		return nil, errors.New("pkgproxy: a page without a head")
	}
	text := make([]byte, size)
	if _, err := file.ReadAt(text, at); err != nil {
		return nil, err
	}
	p := &page{fetched: info.ModTime(), file: file, info: info}
	if err := json.Unmarshal(text, &p.pageHead); err != nil {
		return nil, err
	}
	if p.Lines < 0 || p.End < p.Lines || p.End != at {
		return nil, errors.New("pkgproxy: a page whose parts are not where it says")
	}
	return p, nil
}

// again opens a page that was open before; a fault.Unavailable: there is another one by
// now, or none.
func (s *store) again(was *page) (*page, error) {
	if now := s.openPage(was.Key); now != nil {
		if os.SameFile(now.info, was.info) {
			return now, nil
		}
		now.close()
	}
	return nil, errAnotherPage
}

var errAnotherPage = fault.New(fault.Unavailable, "what the index of packages says has just changed").WithHint("try again")

func (p *page) close() {
	if p != nil {
		_ = p.file.Close()
	}
}

// all reads the lines, one at a time.
func (p *page) all() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		in := bufio.NewReaderSize(io.NewSectionReader(p.file, p.Lines, p.End-p.Lines), 16<<10)
		for {
			line, err := in.ReadSlice('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			var r row
			if err == nil {
				err = json.Unmarshal(line, &r)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// part reads one part of a row's record, which is no larger than most.
func (p *page) part(r row, which int, most int64) ([]byte, error) {
	from := p.section(r, which)
	if from.Size() > most {
		return nil, errPageSize(most)
	}
	data := make([]byte, from.Size())
	_, err := io.ReadFull(from, data)
	return data, err
}

// section is one part of a row's record.
func (p *page) section(r row, which int) *io.SectionReader {
	at := r.At
	for _, n := range r.Parts[:which] {
		at += n
	}
	return io.NewSectionReader(p.file, at, r.Parts[which])
}

// keepPage writes a page, in the place of the one before. write adds its records.
func (s *store) keepPage(key string, system semver.System, now time.Time, write func(*pageWriter) (pageHead, error)) error {
	name, info, err := s.writing(func(f *os.File) error {
		w := &pageWriter{f: f, out: bufio.NewWriterSize(f, 32<<10)}
		head, err := write(w)
		if err != nil {
			return err
		}
		head.Key = key
		return w.finish(head, system)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.root.Chtimes(name, now, now), s.root.Rename(name, pagePlace(key))); err != nil {
		return errors.Join(err, s.root.Remove(name))
	}
	s.grow(info.Size())
	return nil
}

// confirm notes that a page is still what its index says.
func (s *store) confirm(key string, now time.Time) error {
	return s.root.Chtimes(pagePlace(key), now, now)
}

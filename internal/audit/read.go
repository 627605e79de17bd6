package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxLine bounds a record: code of a mebibyte, each byte of it escaped.
const maxLine = 8 << 20

// Line is one line of a file of the log.
type Line struct {
	File   string // its name, without the folder
	Number int    // from 1
	Text   []byte // without its end; valid until the next one
	Torn   bool   // it has no end: a write was cut short, or is going on
}

// days lists the days that there are files of, in their order.
func days(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for _, e := range entries { // sorted by name
		day, ok := strings.CutSuffix(e.Name(), ending)
		if _, bad := time.Parse(dayFormat, day); ok && bad == nil {
			all = append(all, day)
		}
	}
	return all, err
}

// lines gives every line of the days from since on (zero: all) but empty ones.
func lines(dir string, since time.Time) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		all, err := days(dir)
		if err != nil {
			yield(Line{}, fmt.Errorf("looking for the audit log: %w", err))
			return
		}
		for _, day := range all {
			if !since.IsZero() && day < since.UTC().Format(dayFormat) {
				continue
			}
			if !linesOf(dir, day+ending, yield) {
				return
			}
		}
	}
}

// linesOf gives one file's lines and tells whether to go on.
func linesOf(dir, name string, yield func(Line, error) bool) bool {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return true // it became too old just now
	}
	if err != nil {
		return yield(Line{File: name}, fmt.Errorf("reading the audit log: %w", err))
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for number := 1; ; number++ {
		text, torn, err := line(r)
		if len(text) > 0 && !yield(Line{File: name, Number: number, Text: text, Torn: torn}, nil) {
			return false
		}
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return yield(Line{File: name, Number: number}, fmt.Errorf("reading the audit log: %w", err))
		}
	}
}

// line reads one line; what is longer than a record is cut.
func line(r *bufio.Reader) (text []byte, torn bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(text) < maxLine {
			text = append(text, part...)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(text, []byte("\n")), false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return text, len(text) > 0, err
		}
	}
}

// Filter chooses records; empty fields choose all.
type Filter struct {
	Since              time.Time
	Session, Principal string
}

// Read gives the records that the filter chooses, day by day in the order of
// their writing. Lines that are none are left out: Verify speaks of them.
func Read(dir string, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for l, err := range lines(dir, f.Since) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			r, _, err := open(l.Text)
			if err != nil || r.Time.Before(f.Since) || f.Session != "" && r.Session != f.Session || f.Principal != "" && r.Principal != f.Principal {
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

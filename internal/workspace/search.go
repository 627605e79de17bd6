package workspace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/membudget"
	"paddock/internal/pattern"
)

const (
	// MaxMatches bounds what one Search gives.
	MaxMatches = 1000
	// maxMatchText bounds how much of a line a match shows.
	maxMatchText = 300
	// maxPattern bounds a regular expression's source.
	maxPattern = 1000
)

// Match is one line that a search found.
type Match struct {
	Path string
	Line int    // from 1
	Text string // the line, cut to about 300 bytes around the first hit
}

// Matches is what a search found.
type Matches struct {
	Matches []Match // by path and line
	Files   int     // how many files were searched
	Skipped int     // how many were not: no UTF-8, or more than 16 MiB
	More    bool    // there may be more than this
}

// Search finds the lines that match a regular expression (RE2) in the files
// that a glob chooses; limit bounds their number (zero: MaxMatches). It ends with
// ctx, and with a fault.Exhausted where it costs more than pattern.MaxSteps. The scope of
// ctx holds the largest file.
func (t *Tree) Search(ctx context.Context, expression, glob string, limit int) (Matches, error) {
	if expression == "" || len(expression) > maxPattern {
		return Matches{}, fault.New(fault.Invalid, "a regular expression has 1 to %d bytes", maxPattern)
	}
	re, err := pattern.Compile(expression)
	if err != nil {
		return Matches{}, err
	}
	m := pattern.NewMeter(ctx, t.options.Owner, pattern.MaxSteps)
	defer m.Close()
	if limit <= 0 || limit > MaxMatches {
		limit = MaxMatches
	}
	files, more, err := t.list(ctx, glob, m)
	if err != nil {
		return Matches{}, err
	}
	found := Matches{More: more}
	for _, f := range files {
		if ctx.Err() != nil {
			return Matches{}, context.Cause(ctx)
		}
		if err := membudget.Hold(ctx, min(f.Size, MaxText)); err != nil {
			return Matches{}, err
		}
		c, err := t.ReadAll(f.Path, MaxText)
		if err != nil || !c.Text {
			if errors.Is(err, fs.ErrNotExist) {
				continue // it vanished meanwhile
			}
			found.Skipped++
			continue
		}
		found.Files++
		room, err := found.add(f.Path, c.Data, re, limit, m)
		if err != nil {
			return Matches{}, err
		}
		if !room {
			break
		}
	}
	return found, nil
}

// add looks through one file and tells whether there is room for more.
func (m *Matches) add(p string, data []byte, re *pattern.Regexp, limit int, cost *pattern.Meter) (bool, error) {
	for line := 1; len(data) > 0; line++ {
		text, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		text = bytes.TrimSuffix(text, []byte{'\r'})
		at, err := re.Match(text, cost)
		if err != nil {
			return false, err
		}
		if at < 0 {
			continue
		}
		if len(m.Matches) == limit {
			m.More = true
			return false, nil
		}
		m.Matches = append(m.Matches, Match{Path: p, Line: line, Text: excerpt(text, at)})
	}
	return true, nil
}

// excerpt cuts a long line around a hit, at whole characters.
func excerpt(line []byte, at int) string {
	if len(line) <= maxMatchText {
		return string(line)
	}
	from := max(0, at-maxMatchText/4)
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	to := min(len(line), from+maxMatchText)
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to--
	}
	s := string(line[from:to])
	if from > 0 {
		s = "…" + s
	}
	if to < len(line) {
		s += "…"
	}
	return s
}

package pattern

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"paddock/internal/fault"
)

// The bounds of one glob.
const (
	// MaxGlob is how many bytes it may have as it is given; what a caller puts
	// around it may make it longerByMost.
	MaxGlob      = 256
	longerByMost = 8
	// maxWritten is how many globs it may be when its alternatives are written out.
	maxWritten = 128
)

// Glob chooses paths with the syntax of [doublestar.Match]. It may be used by
// several goroutines. The zero Glob matches nothing.
type Glob struct {
	written []string // without alternatives; any of them
}

// NewGlob checks a glob. One that is malformed or has too many alternatives is a
// fault of kind Invalid.
//
// The alternatives are written out before anything is matched, {a,b}/{c,d} as four
// globs: without them doublestar goes back to its last star and its last two stars
// only, which costs each no more than its length times that of the path. With them
// it tries all ways to divide a path among stars and alternatives.
func NewGlob(text string) (Glob, error) {
	if len(text) > MaxGlob+longerByMost {
		return Glob{}, fault.New(fault.Invalid, "the glob has more than %d bytes", MaxGlob).WithHint("choose a folder, and fewer kinds of files")
	}
	if !doublestar.ValidatePattern(text) {
		return Glob{}, fault.New(fault.Invalid, "the glob %q is malformed", text).WithHint("*, **, ?, [a-z] and {a,b} have a meaning; others stand for themselves")
	}
	w := writer{}
	if !w.write(text, 0) {
		return Glob{}, fault.New(fault.Invalid, "the glob has more than %d alternatives in all", maxWritten).WithHint("use fewer braces, or fewer alternatives in them")
	}
	return Glob(w), nil
}

// Match tells whether a path is chosen. The error is the meter's.
func (g Glob) Match(path string, m *Meter) (bool, error) {
	for _, one := range g.written {
		if err := m.Spend(int64(len(one)+1) * int64(len(path)+1)); err != nil {
			return false, err
		}
		if doublestar.MatchUnvalidated(one, path) {
			return true, nil
		}
	}
	return false, nil
}

// writer writes alternatives out, as doublestar reads them: an alternative is put
// in the place of its braces, and read from there on.
type writer struct{ written []string }

// write writes out what text has from an offset on, unless it is too much.
func (w *writer) write(text string, from int) bool {
	open := braceIn(text, from)
	if open < 0 {
		w.written = append(w.written, text)
		return len(w.written) <= maxWritten
	}
	before := oneStar(text[:open])
	alternatives, end := split(text, open+1)
	for _, a := range alternatives {
		rest := a + text[end:]
		start := joined(before, rest)
		if !w.write(start+rest, len(start)) {
			return false
		}
	}
	return true
}

// oneStar makes one star of the stars at the end: before a brace they are no two
// stars, whatever comes.
func oneStar(text string) string {
	stars := len(text) - len(strings.TrimRight(text, "*"))
	if stars > 1 && !escaped(text, len(text)-stars) {
		return text[:len(text)-stars+1]
	}
	return text
}

// joined gives what stands before the rest of a glob, so that a star at its end and one
// at the rest's beginning do not become two stars.
func joined(before, rest string) string {
	if strings.HasSuffix(before, "*") && !escaped(before, len(before)-1) && strings.HasPrefix(rest, "*") && !strings.HasPrefix(rest, "**") {
		return before[:len(before)-1]
	}
	return before
}

// escaped tells whether the character at an offset stands for itself.
func escaped(text string, at int) bool {
	slashes := at - len(strings.TrimRight(text[:at], `\`))
	return slashes%2 == 1
}

// braceIn finds the next opening brace that is not a character of a class and not
// escaped; -1: there is none.
func braceIn(text string, at int) int {
	for ; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '[':
			at = endOfClass(text, at)
		case '{':
			return at
		}
	}
	return -1
}

// endOfClass finds the bracket that closes a class, or the text's end.
func endOfClass(text string, at int) int {
	for at++; at < len(text) && text[at] != ']'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at
}

// split gives the alternatives between braces, whose content begins at an offset,
// and where what follows the closing one begins.
func split(text string, at int) (alternatives []string, end int) {
	from, depth := at, 1
	for ; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '[':
			at = endOfClass(text, at)
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return append(alternatives, text[from:at]), at + 1
			}
		case ',':
			if depth == 1 {
				alternatives = append(alternatives, text[from:at])
				from = at + 1
			}
		}
	}
	return append(alternatives, text[min(from, len(text)):]), len(text) // it was checked: there is one
}

// Plain tells whether a glob stands for itself: nothing in it has a meaning.
func Plain(text string) bool { return !strings.ContainsAny(text, `*?[{\`) }

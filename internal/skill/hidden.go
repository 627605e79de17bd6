package skill

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"paddock/internal/textsafe"
)

// Warning is what people should know of a skill before they trust it, or what
// other programs may refuse it for.
type Warning struct {
	Path string `json:"path"` // of a file
	Line int    `json:"line"` // from 1; 0: of the file as a whole
	Text string `json:"text"`
}

func (w Warning) String() string {
	if w.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", w.Path, w.Line, w.Text)
	}
	return w.Path + ": " + w.Text
}

// maxWarnings bounds what is told of a skill; that there is more is told as well.
const maxWarnings = 50

// hidden finds in the names and texts of a folder what a reader does not see and
// a model reads: text in tag characters or variation selectors, marks that turn
// the direction, blanks of no width, control characters.
func hidden(f Folder) []Warning {
	var all []Warning
	for _, file := range f {
		if found := hiddenIn(file.Path); len(found) > 0 {
			all = append(all, Warning{textsafe.Escape(file.Path), 0, "its name holds " + found[0].what})
		}
		if !utf8.Valid(file.Data) {
			continue
		}
		for _, found := range hiddenIn(string(file.Data)) {
			all = append(all, Warning{textsafe.Escape(file.Path), found.line, "it holds " + found.what})
		}
		if len(all) > maxWarnings {
			return append(all[:maxWarnings], Warning{textsafe.Escape(file.Path), 0, "there is more of this"})
		}
	}
	return all
}

type find struct {
	line int
	what string
}

// hiddenIn gives one find for each line and kind.
func hiddenIn(text string) (found []find) {
	n := -1
	for line := range strings.SplitSeq(text, "\n") {
		n++
		runes := []rune(strings.TrimSuffix(line, "\r"))
		var kinds []string
		for k, r := range runes {
			what := invisible(r)
			if r == 0xfeff && n == 0 && k == 0 || what == joiner && joins(runes, k) {
				continue
			}
			if unicode.IsControl(r) && r != '\t' && r != '\f' {
				what = "control characters"
			}
			if what == tags {
				if k > 0 && invisible(runes[k-1]) == tags {
					continue // it was told with the first
				}
				flag, secret := tagText(runes, k)
				if flag {
					continue
				}
				what = fmt.Sprintf("%s: %q", tags, secret)
			}
			if what != "" && !slices.Contains(kinds, what) {
				kinds = append(kinds, what)
				found = append(found, find{n + 1, what})
			}
			if len(found) > maxWarnings {
				return found
			}
		}
	}
	return found
}

const (
	tags   = "text in invisible tag characters"
	joiner = "invisible joiners"
)

// invisible says which kind of character shows nothing; "": it shows something. It is
// narrower than [textsafe.Visible]: blanks of any width, and the selectors in pictures, are
// ordinary in instructions.
func invisible(r rune) string {
	switch {
	case r >= 0xe0000 && r <= 0xe007f:
		return tags
	case r >= 0xe0100 && r <= 0xe01ef:
		return "invisible variation selectors, which can carry text"
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c:
		return "marks that turn the direction of text"
	case r == 0x200c, r == 0x200d:
		return joiner
	case r == 0x200b, r >= 0x2060 && r <= 0x2065, r >= 0x206a && r <= 0x206f, r == 0xfeff, r == 0x00ad, r == 0x034f, r == 0x180e,
		r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, r == 0x2800, r >= 0xfff9 && r <= 0xfffb, r >= 0x1d173 && r <= 0x1d17a:
		return "invisible characters"
	}
	return ""
}

// joins tells whether a joiner stands between characters that it is made for:
// those of scripts that have it, and pictures.
func joins(runes []rune, k int) bool {
	if k == 0 || k == len(runes)-1 {
		return false
	}
	before, after := runes[k-1], runes[k+1]
	return before > 0x5ff && after > 0x5ff && invisible(before) == "" && invisible(after) == ""
}

// tagText reads what the tag characters from k on spell, and tells whether they are those of a
// flag, which have no more than six of them.
func tagText(runes []rune, k int) (flag bool, text string) {
	var b strings.Builder
	to := k
	for ; to < len(runes) && invisible(runes[to]) == tags; to++ {
		if c := runes[to] - 0xe0000; c >= ' ' && c < 0x7f && b.Len() < 200 {
			b.WriteByte(byte(c))
		}
	}
	const blackFlag = 0x1f3f4
	return k > 0 && runes[k-1] == blackFlag && to-k <= 7 && runes[to-1] == 0xe007f, b.String()
}

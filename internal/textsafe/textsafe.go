// Package textsafe makes text visible that a program, a model or another server wrote. It is
// shown to people who decide by it, so nothing in it may be hidden from them, or change how
// the rest looks. Only this package says which characters those are.
package textsafe

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// blank is a letter of Braille that has no dots.
const blank = '\u2800'

// Visible reports whether a reader sees a character as what it is: not one that moves the
// cursor, turns the direction or joins others, not white space but the blank, and not one
// that shows nothing, such as a filler or a variation selector, of which a whole message
// can be made.
func Visible(r rune) bool {
	if r >= ' ' && r < 0x7f {
		return true
	}
	return unicode.IsPrint(r) && r != blank && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Escape gives s with everything that is not visible, and bytes that are not UTF-8, as
// escapes of JSON's: text that is JSON, without white space but blanks, means what it meant.
func Escape(s string) string {
	for i, r := range s {
		if !Visible(r) || r == utf8.RuneError {
			return string(escape([]byte(s[:i]), s[i:]))
		}
	}
	return s
}

// EscapeBytes is [Escape] of bytes, which stay as they are. Where everything is visible it
// gives b itself.
func EscapeBytes(b []byte) []byte {
	for i := 0; i < len(b); {
		r, n := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(b[i:])
		}
		if !Visible(r) || r == utf8.RuneError {
			return escape(append(make([]byte, 0, len(b)+32), b[:i]...), string(b[i:]))
		}
		i += n
	}
	return b
}

// escape appends s to what is escaped already.
func escape(to []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if Visible(r) && !(r == utf8.RuneError && n == 1) {
			to = append(to, s[i:i+n]...)
			i += n
			continue
		}
		i += n
		for _, unit := range utf16.AppendRune(nil, r) {
			to = append(to, `\u`...)
			for shift := 12; shift >= 0; shift -= 4 {
				to = append(to, "0123456789abcdef"[unit>>shift&15])
			}
		}
	}
	return to
}

// Quote gives s in quotation marks, escaped as [Escape] does.
func Quote(s string) string { return `"` + strings.ReplaceAll(Escape(s), `"`, `\"`) + `"` }

// Mask gives s with a question mark for everything that is not visible.
func Mask(s string) string {
	return strings.Map(func(r rune) rune {
		if !Visible(r) {
			return '?'
		}
		return r
	}, s)
}

// Shorten gives the first bytes of s, whole characters, with an ellipsis where something
// is gone.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return Cut(s, limit) + "…"
}

// Line gives the beginning of s on one line, with one space for each piece of white space
// and without characters that are not visible; limit is in bytes, as [Shorten] has it.
func Line(s string, limit int) string {
	return Shorten(strings.Join(strings.Fields(clean(Shorten(s, 4*limit))), " "), limit)
}

// maxLines bounds what [Lines] gives.
const maxLines = 120

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\u0085", "\n", "\t", "    ")

// Lines gives the beginning of s, at most limit bytes and 120 lines, without characters that
// are not visible, and without empty lines at both ends or after one another.
func Lines(s string, limit int) []string {
	lines := []string{}
	for line := range strings.SplitSeq(lineEnds.Replace(Shorten(s, limit)), "\n") {
		line = strings.TrimRight(clean(line), " ")
		if line == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		if lines = append(lines, line); len(lines) == maxLines {
			break
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// Text gives the beginning of s as [Lines] does, in one piece.
func Text(s string, limit int) string { return strings.Join(Lines(s, limit), "\n") }

// clean gives s without what is not visible, and a blank for white space of other kinds.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case Visible(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
}

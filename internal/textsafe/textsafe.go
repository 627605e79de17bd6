// Package legible tells what a reader sees of a text. What a program, a model or another
// server wrote is shown to people who decide by it, so nothing in it may be hidden from
// them, or change how the rest looks.
package textsafe

import (
	"strings"
	"unicode"
	"unicode/utf16"
)

// blank is a letter of Braille that has no dots.
const blank = '\u2800'

// Visible tells whether a reader sees a character as what it is: not one that moves the
// cursor, turns the direction or joins others, not white space but the blank, and not one
// that shows nothing, such as a filler or a variation selector, of which a whole message
// can be made.
func Visible(r rune) bool {
	return unicode.IsPrint(r) && r != blank && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Escape gives s with everything that does not show as an escape of JSON's: text that is
// JSON, without white space but blanks, means what it meant.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if Visible(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte("0123456789abcdef"[unit>>shift&15])
			}
		}
	}
	return b.String()
}

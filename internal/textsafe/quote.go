package textsafe

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted is how much of a text [QuoteShort] shows, in bytes: what can be read at a glance.
const maxQuoted = 60

// QuoteShort gives in quotes, for a message, the beginning of what somebody else wrote: with everything that does
// not show as an escape, and cut to a length that can be read.
func QuoteShort(s string) string {
	if len(s) > maxQuoted {
		s = Cut(s, maxQuoted) + "…"
	}
	return Escape(strconv.Quote(s))
}

// Cut gives the first n bytes of a text, or less: it ends with a whole character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

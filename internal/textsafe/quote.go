package textsafe

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted is how much of a text [Quote] shows, in bytes: what can be read at a glance.
const maxQuoted = 60

// Quote gives in quotes, for a message, what somebody else wrote: with everything that does
// not show as an escape, and cut to a length that can be read.
func Quote(s string) string {
	if len(s) > maxQuoted {
		s = Cut(s, maxQuoted) + "…"
	}
	return Escape(strconv.Quote(s))
}

// Cut gives the beginning of a text of more than n bytes, which ends with a whole character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

package textsafe

import (
	"strings"
	"testing"
)

func TestAQuoteIsShortAndHidesNothing(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a word":              {"word", `"word"`},
		"quotes and lines":    {"a\"b\\c\nd", `"a\"b\\c\nd"`},
		"a hidden character":  {"a\ufe0eb\u3164\u202e", `"a\ufe0eb\u3164\u202e"`},
		"a long text":         {strings.Repeat("x", 61), `"` + strings.Repeat("x", 60) + `…"`},
		"within a character":  {strings.Repeat("x", 59) + "äy", `"` + strings.Repeat("x", 59) + `…"`},
		"what is not UTF-8":   {"a\xffb", `"a\xffb"`},
		"as long as it shows": {strings.Repeat("x", 60), `"` + strings.Repeat("x", 60) + `"`},
	} {
		if got := QuoteShort(c.text); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

package typescript

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c == '#' || c == '\\'
}

// wordEnd is where a word or number ends, which may have characters by their numbers.
func wordEnd(text string) int {
	for k := 0; k < len(text); {
		if strings.HasPrefix(text[k:], `\u{`) {
			if end := strings.IndexByte(text[k:min(len(text), k+12)], '}'); end > 0 {
				k += end + 1
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(text[k:])
		if r < utf8.RuneSelf && !isWord(byte(r)) || unicode.IsSpace(r) || r == 0xFEFF || r == 0x2028 || r == 0x2029 {
			return max(k, 1)
		}
		k += size
	}
	return len(text)
}

// words is a set of words.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

var (
	// goesOn are words that may go on with what stands before them.
	goesOn = words("else in of instanceof as satisfies is extends implements from")
	// before are words before an expression or a statement, and nothing else.
	before = words("typeof new void delete throw return case do else in instanceof if while for with switch try finally const var class function export default extends import")
	// unclear are words that may be names as well.
	unclear = words("await yield async of as satisfies is keyof readonly unique infer abstract declare static public private protected override get set accessor namespace module using let type interface enum implements asserts from")
)

package worker

import "unicode/utf8"

// validUTF8 is b where every piece that is not UTF-8 is U+FFFD, cut into
// pieces as the WHATWG's decoder does; b itself when all of it is valid.
func validUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	clean := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = malformed(b)
			clean = append(clean, "\uFFFD"...)
		} else {
			clean = append(clean, b[:n]...)
		}
		b = b[n:]
	}
	return clean
}

// malformed is how many bytes one replacement stands for: as much as could
// have been the begin of a character.
func malformed(b []byte) int {
	need, low, high := 0, byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		if c == 0xE0 {
			low = 0xA0
		}
		if c == 0xED {
			if len(b) > 2 && b[1] >= 0xA0 && b[1] <= 0xBF && b[2] >= 0x80 && b[2] <= 0xBF {
				return 3 // half of a surrogate pair, as the engine writes it
			}
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		if c == 0xF0 {
			low = 0x90
		}
		if c == 0xF4 {
			high = 0x8F
		}
	}
	n := 1
	for ; need > 0 && n < len(b) && b[n] >= low && b[n] <= high; need-- {
		n, low, high = n+1, 0x80, 0xBF
	}
	return n
}

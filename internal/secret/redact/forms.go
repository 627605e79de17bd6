package redact

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
)

// pattern is a form of a text, and which text that is.
type pattern struct {
	text []byte
	id   int32
}

// The encodings in which texts are looked for besides their own, by the bits of a
// character.
var (
	base64Forms = []func([]byte) string{base64.RawStdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString}
	base32Forms = []func([]byte) string{base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString}
)

// forms are the ways in which a text stands within others: as it is, in hexadecimal, and
// in base64, in whose three alignments those characters count that depend on the text
// alone. What has escapes is decoded while it is read; see lane.
func forms(text []byte) [][]byte {
	all := [][]byte{text}
	add := func(form []byte) {
		for _, other := range all {
			if bytes.Equal(other, form) {
				return
			}
		}
		all = append(all, form)
	}
	for before := range 3 {
		for _, encode := range base64Forms {
			add(within(text, before, 6, encode))
		}
	}
	lower := hex.EncodeToString(text)
	add([]byte(lower))
	add(bytes.ToUpper([]byte(lower)))
	return all
}

// within gives the characters of a text's encoding, with that many bytes before it, that
// depend on nothing but the text.
func within(text []byte, before, bits int, encode func([]byte) string) []byte {
	padded := make([]byte, before+len(text)+5)
	copy(padded[before:], text)
	encoded := encode(padded)
	return []byte(encoded[(8*before+bits-1)/bits : 8*(before+len(text))/bits])
}

// moreForms are further ones for a text that is only to be noticed.
func moreForms(text []byte) [][]byte {
	all := forms(text)
	for before := range 5 {
		for _, encode := range base32Forms {
			all = append(all, within(text, before, 5, encode))
		}
	}
	var wide []byte // UTF-16, in either order of bytes
	for i, c := range text {
		if i > 0 {
			wide = append(wide, 0)
		}
		wide = append(wide, c)
	}
	return append(all, wide)
}

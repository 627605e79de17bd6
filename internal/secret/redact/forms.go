package redact

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
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
	base32Forms = []func([]byte) string{
		base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString, base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString,
	}
)

// forms are the ways in which a text stands within others: as it is, in hexadecimal, and
// in base64 and base32, in whose alignments those characters count that depend on the text
// alone; in base64 as UTF-16 too. The case of letters does not count, and what has
// escapes, or is UTF-16 or UTF-32, is decoded while it is read; see lane.
func forms(text []byte) [][]byte {
	var all forming
	all.add(text)
	all.add([]byte(hex.EncodeToString(text)))
	all.aligned(text, 6, 3, base64Forms)
	all.aligned(text, 5, 5, base32Forms)
	short, long := wide(text)
	for _, form := range short {
		all.aligned(form, 6, 3, base64Forms)
	}
	for _, form := range append(short, long...) { // the lane of that name leaves out all zeros
		all.add(bytes.ReplaceAll(form, []byte{0}, nil))
	}
	return all
}

// forming are forms in small letters, each once.
type forming [][]byte

func (f *forming) add(form []byte) {
	form = bytes.Clone(form)
	for i, c := range form {
		form[i] = fold[c]
	}
	for _, other := range *f {
		if bytes.Equal(other, form) {
			return
		}
	}
	*f = append(*f, form)
}

// aligned adds a text's encodings, with each number of bytes before it.
func (f *forming) aligned(text []byte, bits, alignments int, encodings []func([]byte) string) {
	for before := range alignments {
		for _, encode := range encodings {
			f.add(within(text, before, bits, encode))
		}
	}
}

// within gives the characters of a text's encoding, with that many bytes before it, that
// depend on nothing but the text.
func within(text []byte, before, bits int, encode func([]byte) string) []byte {
	padded := make([]byte, before+len(text)+5)
	copy(padded[before:], text)
	encoded := encode(padded)
	return []byte(encoded[(8*before+bits-1)/bits : 8*(before+len(text))/bits])
}

// wide gives a text in UTF-16 and in UTF-32, in either order of bytes, without the zeros at
// the ends: without them ASCII is the same in both orders.
func wide(text []byte) (short, long [][]byte) {
	if !utf8.Valid(text) {
		return nil, nil
	}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var units, runes []byte
		for _, c := range string(text) {
			for _, unit := range utf16.AppendRune(nil, c) {
				units = order.AppendUint16(units, unit)
			}
			runes = order.AppendUint32(runes, uint32(c))
		}
		short, long = append(short, bytes.Trim(units, "\x00")), append(long, runes)
	}
	return short, long
}

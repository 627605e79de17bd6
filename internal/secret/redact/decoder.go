package redact

import (
	"html"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A text is read in several ways at once, each a lane: as it is, and with one kind of
// escapes decoded. What a lane decodes is a text that is read in several ways again, as
// far as layers says. A lane is only active where it differs from the text that it reads.
const (
	percent   = iota // %41, as in a path
	form             // the same, and + for a space, as in a query
	backslash        // n after a backslash, \", \x41, \u0041, as in JSON and in sources
	single           // the same, where a backslash before another stands for itself
	entity           // &amp; and &#65;, as in HTML
	folded           // lines of one long word, as base64 has them
	quoted           // =41, and lines that end in =, as in mail (quoted-printable)
	wideText         // without zeros, as ASCII has them in UTF-16 and UTF-32
	lanes
)

// classes are the lanes that a byte means something for, as bits.
var classes = func() (c [256]uint8) {
	c['%'] = 1<<percent | 1<<form
	c['+'] = 1 << form
	c['\\'] = 1<<backslash | 1<<single
	c['&'] = 1 << entity
	c['='] = 1 << quoted
	c['\r'], c['\n'] = 1<<folded, 1<<folded
	c[0] = 1 << wideText
	return c
}()

// needsMore are the lanes that begin only where a pattern has begun.
const needsMore = 1<<folded | 1<<wideText

const (
	// maxEscape bounds an escape in bytes: of the entities of HTML that stand for ASCII
	// &DiacriticalGrave; is the longest.
	maxEscape = 20
	// maxSilent bounds the escapes in a row that stand for nothing, so that what is held
	// back is bounded: UTF-32 has three zeros between two letters.
	maxSilent = 3
	// word is how many bytes of a pattern have to stand before the end of a line for the
	// next line to be taken for its rest.
	word = 8
)

// decoder decodes a text.
type decoder struct {
	kind   int
	silent int                 // the last escapes that stood for nothing
	size   int                 // the bytes of what may be an escape, so far
	escape [maxEscape + 1]byte // that
	places [maxEscape + 1]place
	text   level // what is decoded
}

// place is where a byte stands.
type place struct{ start, end int64 }

// verdict is what is known of an escape.
type verdict int

const (
	partial verdict = iota // more has to be read
	whole
	shorter // it is one without its last byte
	none    // it is none
)

// take reads a byte that stands from start to end.
func (l *decoder) take(s *scan, c byte, start, end int64) {
	if l.size == 0 && !l.begins(s, c) {
		l.emit(s, c, start, end)
		return
	}
	l.escape[l.size], l.places[l.size] = c, place{start, end}
	l.size++
	switch out, v := l.decode(); v {
	case whole:
		l.found(s, out, l.size)
	case shorter:
		l.found(s, out, l.size-1)
		l.take(s, c, start, end)
	case none:
		l.giveUp(s)
	}
}

// found reads what the first bytes of an escape stand for, and forgets the others.
func (l *decoder) found(s *scan, out []byte, size int) {
	start, end := l.places[0].start, l.places[size-1].end
	l.size = 0
	for _, c := range out {
		l.emit(s, c, start, end)
	}
	if len(out) == 0 {
		l.silent++
	}
}

// begins tells whether a byte may begin an escape.
func (l *decoder) begins(s *scan, c byte) bool {
	if classes[c]&(1<<l.kind) == 0 {
		return false
	}
	switch l.kind {
	case folded:
		return l.silent == 0 && (s.nodes[l.text.state].depth() >= word || l.text.active != 0)
	case wideText:
		return l.silent < maxSilent && (l.text.state != 0 || l.text.active != 0)
	}
	return l.silent < maxSilent
}

// giveUp reads what is not an escape for what it is.
func (l *decoder) giveUp(s *scan) {
	n, escape := l.size, l.escape
	first, last := l.places[0], l.places[l.size-1]
	l.size = 0
	if n <= 2 { // almost always
		l.emit(s, escape[0], first.start, first.end)
		if n == 2 {
			l.take(s, escape[1], last.start, last.end)
		}
		return
	}
	places := l.places
	l.emit(s, escape[0], first.start, first.end)
	for i := 1; i < n; i++ {
		l.take(s, escape[i], places[i].start, places[i].end)
	}
}

// finish reads the end of the text.
func (l *decoder) finish(s *scan) {
	for l.size > 0 {
		if l.kind == entity {
			if out := unescaped(l.escape[:l.size]); out != nil {
				l.found(s, out, l.size)
				return
			}
		}
		l.giveUp(s)
	}
}

// emit reads a decoded byte.
func (l *decoder) emit(s *scan, c byte, start, end int64) {
	l.silent = 0
	l.text.read(s, c, start, end)
}

// decode reads the escape so far.
func (l *decoder) decode() ([]byte, verdict) {
	e := l.escape[:l.size]
	switch l.kind {
	case form:
		if e[0] == '+' {
			return []byte{' '}, whole
		}
		return hexDigits(e, 1, 2)
	case percent:
		return hexDigits(e, 1, 2)
	case single:
		if len(e) == 2 && e[1] == '\\' {
			return nil, none
		}
		return decodeBackslash(e)
	case backslash:
		return decodeBackslash(e)
	case entity:
		return decodeEntity(e)
	case quoted:
		return decodeQuoted(e)
	case wideText:
		return nil, whole
	}
	switch { // the end of a line
	case e[len(e)-1] == '\n':
		return nil, whole
	case len(e) == 1:
		return nil, partial
	}
	return nil, none
}

// hexDigits reads a number of digits that follow a prefix, as a byte.
func hexDigits(e []byte, prefix, digits int) ([]byte, verdict) {
	v, ok := number(e[min(prefix, len(e)):])
	switch {
	case !ok:
		return nil, none
	case len(e) < prefix+digits:
		return nil, partial
	}
	return []byte{byte(v)}, whole
}

func number(digits []byte) (v rune, ok bool) {
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

var letters = map[byte]byte{'"': '"', '\\': '\\', '/': '/', '\'': '\'', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func decodeBackslash(e []byte) ([]byte, verdict) {
	if len(e) == 1 {
		return nil, partial
	}
	switch fold[e[1]] {
	case 'x':
		return hexDigits(e, 2, 2)
	case 'u':
	default:
		if c, ok := letters[fold[e[1]]]; ok {
			return []byte{c}, whole
		}
		return nil, none
	}
	first, ok := number(e[2:min(6, len(e))])
	switch {
	case !ok:
		return nil, none
	case len(e) < 6:
		return nil, partial
	case !utf16.IsSurrogate(first):
		return utf8.AppendRune(nil, first), whole
	}
	rest := e[6:]
	second, ok := number(rest[min(2, len(rest)):])
	switch {
	case len(rest) > 0 && rest[0] != '\\' || len(rest) > 1 && fold[rest[1]] != 'u' || !ok:
		return nil, none
	case len(rest) < 6:
		return nil, partial
	}
	if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
		return utf8.AppendRune(nil, r), whole
	}
	return nil, none
}

// decodeEntity reads one of HTML, whose last semicolon may be missing.
func decodeEntity(e []byte) ([]byte, verdict) {
	c := e[len(e)-1]
	switch {
	case len(e) == 1 || c == '#' && len(e) == 2:
		return nil, partial
	case c == ';':
		if plain := unescaped(e); plain != nil {
			return plain, whole
		}
		return nil, none
	case (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z'):
		if plain := unescaped(e[:len(e)-1]); plain != nil {
			return plain, shorter
		}
		return nil, none
	case len(e) >= maxEscape:
		return nil, none
	}
	return nil, partial
}

// unescaped is what an entity stands for, in whatever case; nil: it is none.
func unescaped(e []byte) []byte {
	for _, text := range []string{string(e), strings.ToLower(string(e))} {
		if plain := html.UnescapeString(text); plain != text {
			return []byte(plain)
		}
	}
	return nil
}

// decodeQuoted reads an escape of quoted-printable: a byte, or the end of a line.
func decodeQuoted(e []byte) ([]byte, verdict) {
	switch c := e[len(e)-1]; {
	case len(e) == 1:
		return nil, partial
	case c == '\n':
		return nil, whole
	case (c == '\r' || c == ' ' || c == '\t') && (len(e) == 2 || e[1] == ' ' || e[1] == '\t') && len(e) < maxEscape:
		return nil, partial
	}
	return hexDigits(e, 1, 2)
}

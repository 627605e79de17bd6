package redact

import (
	"html"
	"unicode/utf16"
	"unicode/utf8"
)

// A text is read in several ways at once, each a lane: as it is, and with one kind of
// escapes decoded. A lane is only active where it differs from the text as it is.
const (
	percent   = iota // %41, as in a path
	form             // the same, and + for a space, as in a query
	backslash        // \n, \", \x41, \u0041, as in JSON and in sources
	single           // the same, where a backslash before another stands for itself
	entity           // &amp; and &#65;, as in HTML
	folded           // lines of one long word, as base64 has them
	lanes
)

// classes are the lanes that a byte means something for, as bits.
var classes = func() (c [256]uint8) {
	c['%'] = 1<<percent | 1<<form
	c['+'] = 1 << form
	c['\\'] = 1<<backslash | 1<<single
	c['&'] = 1 << entity
	c['\r'], c['\n'] = 1<<folded, 1<<folded
	return c
}()

const (
	// maxEntity bounds an entity in bytes: those of HTML that stand for ASCII are shorter.
	maxEntity = 12
	// word is how many bytes of a pattern have to stand before the end of a line for the
	// next line to be taken for its rest.
	word = 8
)

// lane decodes, and looks for patterns in what it has decoded.
type lane struct {
	kind   int
	state  int32
	folded bool    // the end of a line has just been passed over
	escape []byte  // what may be one, so far
	since  int64   // where that begins
	starts []int64 // where the last bytes that were decoded begin, at least those of the state
}

// verdict is what is known of an escape.
type verdict int

const (
	partial verdict = iota // more has to be read
	whole
	none // it is none
)

// take reads a byte that stands at a place.
func (l *lane) take(s *scan, c byte, at int64) {
	if len(l.escape) == 0 {
		if !l.begins(s, c) {
			l.emit(s, c, at, at+1)
			return
		}
		l.since = at
	}
	l.escape = append(l.escape, c)
	out, v := l.decode()
	switch v {
	case whole:
		l.escape = l.escape[:0]
		for _, d := range out {
			l.emit(s, d, l.since, at+1)
		}
		l.folded = l.kind == folded
	case none:
		l.giveUp(s)
	}
}

// begins tells whether a byte may begin an escape.
func (l *lane) begins(s *scan, c byte) bool {
	if classes[c]&(1<<l.kind) == 0 {
		return false
	}
	return l.kind != folded || !l.folded && s.nodes[l.state].depth >= word
}

// giveUp reads what is no escape for what it is.
func (l *lane) giveUp(s *scan) {
	var text [maxEntity + 2]byte
	n := copy(text[:], l.escape)
	since := l.since
	l.escape = l.escape[:0]
	if n == 0 {
		return
	}
	l.emit(s, text[0], since, since+1)
	for i, c := range text[1:n] {
		l.take(s, c, since+1+int64(i))
	}
}

// emit looks at a decoded byte, which stands from start to end.
func (l *lane) emit(s *scan, c byte, start, end int64) {
	l.folded = false
	l.state = s.step(l.state, c)
	l.starts = append(l.starts, start)
	n := &s.nodes[l.state]
	if n.length > 0 {
		s.match(span{start: l.from(n.length), end: end, id: n.id, length: n.length})
	}
	if depth := int(n.depth); len(l.starts) > 2*depth+64 {
		l.starts = append(l.starts[:0], l.starts[len(l.starts)-depth:]...)
	}
}

// from is where the bytes of an end of that length begin.
func (l *lane) from(depth int32) int64 { return l.starts[len(l.starts)-int(depth)] }

// hold is where what the lane has not done with begins; at: nowhere before.
func (l *lane) hold(s *scan, at int64) int64 {
	if len(l.escape) > 0 {
		at = min(at, l.since)
	}
	if h := s.nodes[l.state].hold; h > 0 {
		at = min(at, l.from(h))
	}
	return at
}

// decode reads the escape so far.
func (l *lane) decode() ([]byte, verdict) {
	e := l.escape
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
	switch e[1] {
	case 'x':
		return hexDigits(e, 2, 2)
	case 'u':
	default:
		if c, ok := letters[e[1]]; ok {
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
	case len(rest) > 0 && rest[0] != '\\' || len(rest) > 1 && rest[1] != 'u' || !ok:
		return nil, none
	case len(rest) < 6:
		return nil, partial
	}
	if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
		return utf8.AppendRune(nil, r), whole
	}
	return nil, none
}

func decodeEntity(e []byte) ([]byte, verdict) {
	c := e[len(e)-1]
	switch {
	case len(e) == 1 || c == '#' && len(e) == 2:
		return nil, partial
	case c == ';':
		text := string(e)
		if plain := html.UnescapeString(text); plain != text {
			return []byte(plain), whole
		}
		return nil, none
	case len(e) >= maxEntity || (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z'):
		return nil, none
	}
	return nil, partial
}

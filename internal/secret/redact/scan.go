package redact

import (
	"math/bits"
	"slices"
)

// span is where a pattern was found in a text.
type span struct {
	start, end int64
	id         int32
	length     int32 // of the pattern: of spans that overlap the longest counts
	given      bool  // what stands in its place has been given out
}

// scan reads one text. It is for one goroutine.
type scan struct {
	*automaton
	pos   int64
	text  level
	spans []span // what was found, in order, none touching another's bytes
}

// layers is how many decoders may stand on one another: a URL in HTML, JSON in JSON.
const layers = 2

func newScan(a *automaton) *scan {
	return &scan{automaton: a, text: level{left: layers, comes: true}}
}

// read reads what comes next.
func (s *scan) read(text []byte) {
	for i := 0; i < len(text); i++ {
		if s.text.active == 0 && s.nodes[s.text.state].depth() <= 1 {
			if i += s.pass(text[i:]); i == len(text) {
				return
			}
		}
		s.pos++
		s.text.read(s, text[i], s.pos-1, s.pos)
	}
}

// pass reads bytes that begin nothing together with what is before them, and tells how
// many: almost all of most texts.
func (s *scan) pass(text []byte) int {
	from := &s.pairs[s.nodes[s.text.state].c()]
	if s.text.state == 0 {
		from = &s.none
	}
	n := 0
	for n < len(text) && !from.has(text[n]) {
		from = &s.pairs[text[n]]
		n++
	}
	if n > 0 {
		s.pos += int64(n)
		s.text.state = s.root[text[n-1]]
	}
	return n
}

// end reads the end of the text.
func (s *scan) end() {
	s.text.finish(s)
	s.text.active, s.text.state = 0, 0
}

// hold is the place before which nothing that is still to come can be found.
func (s *scan) hold() int64 { return s.text.hold(s, s.pos) }

// match notes what was found. What it overlaps becomes one with it.
func (s *scan) match(n span) {
	from := len(s.spans)
	for from > 0 && s.spans[from-1].end > n.start {
		from--
	}
	to := from
	for to < len(s.spans) && s.spans[to].start < n.end {
		o := s.spans[to]
		if o.length >= n.length {
			n.id, n.length = o.id, o.length
		}
		n.start, n.end, n.given = min(n.start, o.start), max(n.end, o.end), n.given || o.given
		to++
	}
	s.spans = slices.Replace(s.spans, from, to, n)
}

// level is a text in which patterns are looked for: the one that comes, or what a lane
// decodes of another.
type level struct {
	comes  bool // it is the one that comes
	left   int  // how many more decoders may stand on it
	state  int32
	active uint8     // the lanes that are, as bits
	once   uint8     // the lanes that do not stand on it, as bits
	lanes  []decoder // what decodes it; nil: nothing has yet
	starts []int64   // where the last bytes begin, at least those of the state; unless it comes
}

// read reads a byte, which stands from start to end in the text that comes.
func (l *level) read(s *scan, c byte, start, end int64) {
	before := l.state
	l.state = s.step(before, c)
	if !l.comes {
		l.starts = append(l.starts, start)
	}
	n := s.nodes[l.state]
	if n.meta&hasEnd != 0 {
		m := s.ends[l.state]
		s.match(span{start: l.from(m.length, end), end: end, id: m.id, length: m.length})
	}
	if l.left > 0 {
		l.wake(s, before, c, start)
		for active := l.active; active != 0; active &= active - 1 {
			l.decode(s, bits.TrailingZeros8(active), c, start, end)
		}
	}
	if depth := int(n.depth()); len(l.starts) > 2*depth+64 {
		l.starts = append(l.starts[:0], l.starts[len(l.starts)-depth:]...)
	}
}

// wake has lanes begin that a byte, which begins at start, means something for; before
// was the state. What they have decoded so far is what the level has read, and so is what
// lanes on them have.
func (l *level) wake(s *scan, before int32, c byte, start int64) {
	waking := classes[c] &^ (l.active | l.once)
	switch {
	case waking == 0:
		return
	case before == 0 && l.active == 0:
		waking &^= needsMore
	case s.nodes[before].depth() < word && l.active == 0:
		waking &^= 1 << folded
	}
	if waking != 0 && l.lanes == nil {
		l.lanes = make([]decoder, lanes)
		for kind := range l.lanes {
			l.lanes[kind].kind = kind
			l.lanes[kind].text.left, l.lanes[kind].text.once = l.left-1, 1<<kind&needsMore
		}
	}
	was := l.active
	for ; waking != 0; waking &= waking - 1 {
		kind := bits.TrailingZeros8(waking)
		d := &l.lanes[kind]
		d.silent, d.text.state, d.text.active, d.text.starts = 0, before, 0, l.last(d.text.starts[:0], int(s.nodes[before].depth()), start)
		if d.text.left > 0 {
			d.text.inherit(l, was)
		}
		l.active |= 1 << kind
	}
}

// last appends where the last bytes begin, of that number, before the one that was read,
// which begins at start.
func (l *level) last(to []int64, depth int, start int64) []int64 {
	if !l.comes {
		known := len(l.starts) - 1
		return append(to, l.starts[known-depth:known]...)
	}
	for k := start - int64(depth); k < start; k++ {
		to = append(to, k)
	}
	return to
}

// inherit takes over what another level's lanes, of these kinds, have of the same text.
func (l *level) inherit(from *level, active uint8) {
	active &^= l.once
	if active == 0 {
		return
	}
	if l.lanes == nil {
		l.lanes = make([]decoder, lanes)
	}
	l.active = active
	for kind := range l.lanes {
		to, d := &l.lanes[kind], &from.lanes[kind]
		to.kind, to.text.left, to.text.once = kind, l.left-1, 1<<kind&needsMore
		if active&(1<<kind) == 0 {
			continue
		}
		to.silent, to.size, to.escape, to.places = d.silent, d.size, d.escape, d.places
		to.text.state, to.text.starts = d.text.state, append(to.text.starts[:0], d.text.starts...)
	}
}

// decode has a lane read a byte, and lets it sleep again where it reads what the text is.
func (l *level) decode(s *scan, kind int, c byte, start, end int64) {
	d := &l.lanes[kind]
	d.take(s, c, start, end)
	if d.size == 0 && d.silent == 0 && d.text.active == 0 && d.text.state == l.state {
		if depth := s.nodes[l.state].depth(); depth == 0 || d.text.from(depth, end) == l.from(depth, end) {
			l.active &^= 1 << kind
		}
	}
}

// from is where the last bytes, of that number, begin, where the last one ends at end.
func (l *level) from(depth int32, end int64) int64 {
	if l.comes {
		return end - int64(depth)
	}
	return l.starts[len(l.starts)-int(depth)]
}

// hold is where what is not done with begins; at: nowhere before.
func (l *level) hold(s *scan, at int64) int64 {
	if h := s.automaton.hold(l.state); h > 0 {
		at = min(at, l.from(h, s.pos))
	}
	for active := l.active; active != 0; active &= active - 1 {
		d := &l.lanes[bits.TrailingZeros8(active)]
		if d.size > 0 {
			at = min(at, d.places[0].start)
		}
		at = d.text.hold(s, at)
	}
	return at
}

// finish reads the end of the text.
func (l *level) finish(s *scan) {
	for active := l.active; active != 0; active &= active - 1 {
		d := &l.lanes[bits.TrailingZeros8(active)]
		d.finish(s)
		d.text.finish(s)
	}
}

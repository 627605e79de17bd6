package redact

import "slices"

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
	pos    int64
	state  int32
	active uint8 // the lanes that are, as bits
	lanes  [lanes]lane
	spans  []span // what was found, in order, none touching another's bytes
}

func newScan(a *automaton) *scan {
	s := &scan{automaton: a}
	for kind := range s.lanes {
		s.lanes[kind].kind = kind
	}
	return s
}

// read reads what comes next.
func (s *scan) read(text []byte) {
	for i := 0; i < len(text); i++ {
		if s.active == 0 && s.state == 0 {
			from := i
			for i < len(text) && s.quiet[text[i]] {
				i++
			}
			s.pos += int64(i - from)
			if i == len(text) {
				return
			}
		}
		s.one(text[i])
	}
}

// one reads a byte.
func (s *scan) one(c byte) {
	before, at := s.state, s.pos
	s.state = s.step(before, c)
	s.pos++
	if n := &s.nodes[s.state]; n.length > 0 {
		s.match(span{start: s.pos - int64(n.length), end: s.pos, id: n.id, length: n.length})
	}
	concerned := classes[c] | s.active
	if concerned == 0 {
		return
	}
	for kind := range s.lanes {
		if bit := uint8(1) << kind; concerned&bit != 0 {
			s.oneOf(&s.lanes[kind], bit, c, before, at)
		}
	}
}

// oneOf has a lane read a byte, and lets it sleep again where it reads what the text is.
func (s *scan) oneOf(l *lane, bit uint8, c byte, before int32, at int64) {
	if s.active&bit == 0 {
		if l.kind == folded && s.nodes[before].depth < word {
			return
		}
		s.active |= bit
		l.state, l.folded, l.starts = before, false, l.starts[:0]
		for k := at - int64(s.nodes[before].depth); k < at; k++ {
			l.starts = append(l.starts, k)
		}
	}
	l.take(s, c, at)
	depth := s.nodes[s.state].depth
	if len(l.escape) == 0 && !l.folded && l.state == s.state && (depth == 0 || l.from(depth) == s.pos-int64(depth)) {
		s.active &^= bit
	}
}

// end reads the end of the text.
func (s *scan) end() {
	for kind := range s.lanes {
		for l := &s.lanes[kind]; s.active&(1<<kind) != 0 && len(l.escape) > 0; {
			l.giveUp(s)
		}
	}
	s.active, s.state = 0, 0
}

// hold is the place before which nothing that is still to come can be found.
func (s *scan) hold() int64 {
	at := s.pos - int64(s.nodes[s.state].hold)
	for kind := range s.lanes {
		if s.active&(1<<kind) != 0 {
			at = s.lanes[kind].hold(s, at)
		}
	}
	return at
}

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

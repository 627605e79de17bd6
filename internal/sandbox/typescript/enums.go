package typescript

import "strings"

// esbuild works out what the members of an enum are, where it can, and writes a text in
// the place of whatever names it, also in other members: thirty lines of A1 = A0 + A0
// have gigabytes. The bounds are of what a member, and all that names one, may become.
const (
	maxMember = 1 << 20  // bytes
	maxNamed  = 32 << 20 // bytes
	// maxOpen is how many may be open in one another: each word looks at all of them.
	maxOpen = 50
)

// enums sums up what texts may become. A member is as long as its value in the program
// and all members that this names: those of that name of any enum before, and the longest
// one for what is in brackets or written by numbers, and may be any of them.
type enums struct {
	is    int    // how much of `enum NAME {` came last: 1 or 2 of its words
	open  []body // those that are open, in one another
	sizes map[string]int
	seen  map[string]int // how often each word and text is there
	odd   int            // and what may be any

	longest, where int // the longest member, and where it ends
}

// body is that of an enum.
type body struct {
	depth  int    // how many levels are open in it
	name   string // of the member
	named  bool   // it has begun
	begins int    // where its value does, at the earliest
	names  int    // bytes of the members that it names
}

// saw is told of a word, or of a text in quotes, that ends at a place.
func (e *enums) saw(word string, at int) {
	if e.seen == nil {
		return
	}
	size := e.sizes[word]
	if strings.Contains(word, `\`) {
		size = e.longest
		e.odd++
	}
	e.seen[word]++
	for k := range e.open {
		if b := &e.open[k]; k == len(e.open)-1 && !b.named {
			b.name, b.named, b.begins, b.names = word, true, at, 0
		} else {
			b.names = min(b.names+size, maxMember+1)
		}
	}
}

// bracket is told of a [ behind something.
func (e *enums) bracket() {
	e.odd++
	for k := range e.open {
		e.open[k].names = min(e.open[k].names+e.longest, maxMember+1)
	}
}

// begin is told of the { of a body with so many levels open.
func (e *enums) begin(depth int) {
	if e.seen != nil {
		e.open = append(e.open, body{depth: depth})
	}
}

// end is told of the , or of the } at a place, with so many levels open.
func (e *enums) end(depth, at int, all bool) {
	k := len(e.open) - 1
	if k < 0 || e.open[k].depth != depth {
		return
	}
	if b := &e.open[k]; b.named {
		size := at - b.begins + b.names
		e.sizes[b.name] = max(e.sizes[b.name], size)
		if size > e.longest {
			e.longest, e.where = size, at
		}
		b.named = false
	}
	if all {
		e.open = e.open[:k]
	}
}

// over tells whether a member is too long or too many are open, and named whether all that names members is.
func (e *enums) over() bool { return e.longest > maxMember || len(e.open) > maxOpen }

func (e *enums) named() bool {
	sum := e.odd * e.longest
	for name, size := range e.sizes {
		sum += e.seen[name] * size
	}
	return len(e.sizes) > 0 && sum > maxNamed
}

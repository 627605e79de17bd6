package redact

import (
	"cmp"
	"slices"
)

// automaton finds many patterns at once in a text that is read byte by byte
// (Aho-Corasick). ASCII letters count alike in both cases. Patterns are long and few, so
// that a state mostly has one successor, which is the next one in memory. It does not
// change once it is made, and is for any number of goroutines.
type automaton struct {
	root  [256]int32 // the successors of state 0, by a byte as it comes
	pairs [256]set   // by a byte, those that after it begin a pattern, or that a decoder has to see
	none  set        // the same, where there is none before
	nodes []node
	ends  map[int32]match // of the states that have ends
}

// set is one of bytes.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }

// match is the longest pattern that ends in a state.
type match struct{ length, id int32 }

// node is a state: the longest end of the text that begins a pattern. There are some forty
// for each byte that is looked for; nodeBytes is what one takes.
type node struct {
	fail    int32  // the next shorter such end
	sibling int32  // the next successor of the same state; 0: none
	meta    uint32 // the byte that leads here, flags, and the number of its bytes
}

const (
	nodeBytes = 12
	hasChild  = 1 << 8 // the node that follows in memory is its first successor
	hasEnd    = 1 << 9 // a pattern ends here
	depthFrom = 10     // the bit of meta from which its depth is
	maxDepth  = 1<<(32-depthFrom) - 1
)

func (n node) c() byte      { return byte(n.meta) }
func (n node) depth() int32 { return int32(n.meta >> depthFrom) }

// fold is what a byte is read as.
var fold = func() (f [256]byte) {
	for c := range f {
		f[c] = byte(c)
		if c >= 'A' && c <= 'Z' {
			f[c] = byte(c) + 'a' - 'A'
		}
	}
	return f
}()

// newAutomaton makes one of patterns and of whose each is. Of two that are alike the
// first counts.
func newAutomaton(patterns []pattern) *automaton {
	a := &automaton{nodes: make([]node, 1), ends: map[int32]match{}}
	// The longer first: then what a pattern ends in either has its successor already, or
	// never gets one, and successors stand side by side.
	slices.SortStableFunc(patterns, func(p, q pattern) int { return cmp.Compare(len(q.text), len(p.text)) })
	for _, p := range patterns {
		a.add(p)
	}
	a.nodes = slices.Clip(a.nodes)
	a.link()
	for c := 'A'; c <= 'Z'; c++ {
		a.root[c] = a.root[fold[c]]
	}
	a.pair(&a.none, 0)
	for c := range a.pairs {
		a.pair(&a.pairs[c], a.root[c])
	}
	return a
}

// pair fills the set of what cannot be passed over in a state of one byte or none.
func (a *automaton) pair(s *set, at int32) {
	for c := range classes {
		needs := classes[c] &^ needsMore
		if at != 0 { // a pattern has begun
			needs |= classes[c] & (1 << wideText)
		}
		if needs != 0 || at != 0 && a.successor(at, fold[c]) != 0 || a.nodes[a.root[c]].meta&hasEnd != 0 {
			s.add(byte(c))
		}
	}
}

func (a *automaton) add(p pattern) {
	at := int32(0)
	for _, c := range p.text[:min(len(p.text), maxDepth)] {
		c = fold[c]
		next := a.successor(at, c)
		if next == 0 {
			next = int32(len(a.nodes))
			a.nodes = append(a.nodes, node{meta: uint32(a.nodes[at].depth()+1)<<depthFrom | uint32(c)})
			a.join(at, next, c)
		}
		at = next
	}
	if _, has := a.ends[at]; at != 0 && !has {
		a.ends[at] = match{a.nodes[at].depth(), p.id}
	}
}

// join makes a new node a successor of another.
func (a *automaton) join(at, next int32, c byte) {
	switch {
	case at == 0:
		a.root[c] = next
	case at == next-1:
		a.nodes[at].meta |= hasChild
	default:
		a.nodes[next].sibling = a.nodes[at+1].sibling
		a.nodes[at+1].sibling = next
	}
}

// child is a state's first successor, which is not the first state; 0: it has none.
func (a *automaton) child(at int32) int32 {
	if a.nodes[at].meta&hasChild == 0 {
		return 0
	}
	return at + 1
}

// successor is a state's own for a byte that is folded; 0: it has none.
func (a *automaton) successor(at int32, c byte) int32 {
	if at == 0 {
		return a.root[c]
	}
	for k := a.child(at); k != 0; k = a.nodes[k].sibling {
		if a.nodes[k].c() == c {
			return k
		}
	}
	return 0
}

// link finds, shorter ones first, what each state goes back to.
func (a *automaton) link() {
	var queue []int32
	for _, k := range a.root {
		if k != 0 {
			queue = append(queue, k)
		}
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		if _, has := a.ends[at]; !has {
			if end, has := a.ends[a.nodes[at].fail]; has {
				a.ends[at] = end
			}
		}
		if _, has := a.ends[at]; has {
			a.nodes[at].meta |= hasEnd
		}
		for k := a.child(at); k != 0; k = a.nodes[k].sibling {
			a.nodes[k].fail = a.next(a.nodes[at].fail, a.nodes[k].c())
			queue = append(queue, k)
		}
	}
}

// next is the state after a byte, which is folded.
func (a *automaton) next(at int32, c byte) int32 {
	for at != 0 {
		if k := a.successor(at, c); k != 0 {
			return k
		}
		at = a.nodes[at].fail
	}
	return a.root[c]
}

// step is the state after a byte.
func (a *automaton) step(at int32, c byte) int32 {
	if at == 0 {
		return a.root[c]
	}
	return a.next(at, fold[c])
}

// hold is how many bytes at the end of what led to a state may still become a match.
func (a *automaton) hold(at int32) int32 {
	for at != 0 && a.nodes[at].meta&hasChild == 0 {
		at = a.nodes[at].fail
	}
	return a.nodes[at].depth()
}

package redact

// automaton finds many patterns at once in a text that is read byte by byte
// (Aho-Corasick). Patterns are long and few, so that a state mostly has one successor:
// successors are lists, but for the first state's, which is where almost all of a text is
// read. It does not change once it is made, and is for any number of goroutines.
type automaton struct {
	fold  [256]byte  // what a byte is read as
	root  [256]int32 // the successors of state 0
	quiet [256]bool  // what leaves state 0, and every decoder, as they are
	nodes []node
}

// node is a state: the longest end of the text that begins a pattern.
type node struct {
	fail    int32 // the next shorter such end
	child   int32 // the first successor; 0: none
	sibling int32 // the next successor of the same state; 0: none
	depth   int32 // its bytes
	hold    int32 // the bytes of the longest such end that may still become a match
	length  int32 // the bytes of the longest pattern that ends here; 0: none does
	id      int32 // whose pattern that is
	c       byte  // that leads here
}

// newAutomaton makes one of patterns and of whose each is. folded: letters count alike in
// both cases.
func newAutomaton(patterns []pattern, folded bool) *automaton {
	a := &automaton{nodes: make([]node, 1)}
	for c := range a.fold {
		a.fold[c] = byte(c)
		if folded && c >= 'A' && c <= 'Z' {
			a.fold[c] = byte(c) + 'a' - 'A'
		}
	}
	for _, p := range patterns {
		a.add(p)
	}
	a.link()
	for c := range a.quiet {
		a.quiet[c] = classes[c] == 0 && a.root[a.fold[c]] == 0
	}
	return a
}

func (a *automaton) add(p pattern) {
	at := int32(0)
	for _, c := range p.text {
		c = a.fold[c]
		next := a.successor(at, c)
		if next == 0 {
			next = int32(len(a.nodes))
			a.nodes = append(a.nodes, node{c: c, depth: a.nodes[at].depth + 1})
			if at == 0 {
				a.root[c] = next
			}
			a.nodes[next].sibling = a.nodes[at].child
			a.nodes[at].child = next
		}
		at = next
	}
	if n := &a.nodes[at]; at != 0 && n.length == 0 {
		n.length, n.id = n.depth, p.id
	}
}

// successor is a state's own; 0: it has none for that byte.
func (a *automaton) successor(at int32, c byte) int32 {
	if at == 0 {
		return a.root[c]
	}
	for k := a.nodes[at].child; k != 0; k = a.nodes[k].sibling {
		if a.nodes[k].c == c {
			return k
		}
	}
	return 0
}

// link finds, shorter ones first, what each state goes back to.
func (a *automaton) link() {
	var queue []int32
	for k := a.nodes[0].child; k != 0; k = a.nodes[k].sibling {
		queue = append(queue, k)
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		n := &a.nodes[at]
		back := &a.nodes[n.fail]
		if n.hold = back.hold; n.child != 0 {
			n.hold = n.depth
		}
		if n.length == 0 {
			n.length, n.id = back.length, back.id
		}
		for k := n.child; k != 0; k = a.nodes[k].sibling {
			a.nodes[k].fail = a.next(n.fail, a.nodes[k].c)
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
func (a *automaton) step(at int32, c byte) int32 { return a.next(at, a.fold[c]) }

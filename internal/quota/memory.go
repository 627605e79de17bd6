// Package quota measures what owners take of a server, to be compared with what they
// may: the memory of what lives ([Memory]), and the disk of what is stored ([Disk]).
// What happens where there is too little is decided elsewhere.
package quota

import "sync"

// Holder is whose memory it is: an interpreter's, or, where Runtime is empty, that of a
// session's machine.
type Holder struct{ Owner, Session, Runtime string }

// Memory is what holders take, in bytes: what each had at the end of its last run, and
// while one runs, or starts, all that it may take. The zero Memory counts nothing yet.
// It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex // guards what follows
	total  int64
	owners map[string]int64
	held   map[Holder]int64
}

// Set notes what a holder takes; zero: it is gone.
func (m *Memory) Set(h Holder, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(h, bytes)
}

func (m *Memory) setLocked(h Holder, bytes int64) {
	if m.held == nil {
		m.held, m.owners = map[Holder]int64{}, map[string]int64{}
	}
	growth := bytes - m.held[h]
	m.total += growth
	if m.owners[h.Owner] += growth; m.owners[h.Owner] == 0 {
		delete(m.owners, h.Owner)
	}
	if m.held[h] = bytes; bytes == 0 {
		delete(m.held, h)
	}
}

// Grow lets a holder take so much, unless its owner would have more than most or all
// together more than mostOfAll; alone tells whether it was the owner. What takes as
// much already may go on.
func (m *Memory) Grow(h Holder, bytes, most, mostOfAll int64) (alone, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	growth := bytes - m.held[h]
	switch {
	case growth <= 0:
	case m.owners[h.Owner]+growth > most:
		return true, false
	case m.total+growth > mostOfAll:
		return false, false
	}
	m.setLocked(h, max(bytes, m.held[h]))
	return false, true
}

// Of gives what each session of an owner takes.
func (m *Memory) Of(owner string) map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := map[string]int64{}
	for h, bytes := range m.held {
		if h.Owner == owner {
			sums[h.Session] += bytes
		}
	}
	return sums
}

// Total is what all take.
func (m *Memory) Total() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}

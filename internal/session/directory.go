package session

import (
	"maps"
	"slices"
	"sync"
)

// directory holds the sessions that this process has open, or is opening or ending, by
// their keys. It is safe for concurrent use. Nothing else is locked while its lock is
// held, so it may be called with any lock held.
type directory struct {
	perOwner, total int // how many an owner, and all owners, have open at most

	mu       sync.Mutex // guards the fields below
	closed   bool
	sessions map[key]*session
}

func newDirectory(perOwner, total int) *directory {
	return &directory{perOwner: perOwner, total: total, sessions: map[key]*session{}}
}

// get returns a session; nil: it is not here.
func (d *directory) get(k key) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[k]
}

// lookup is get that returns errShutdown once the directory is closed.
func (d *directory) lookup(k key) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errShutdown
	}
	return d.sessions[k], nil
}

// add puts the session that newOne returns into the directory, where it is not there and
// there is room for it. It returns the session that is there already, or the one that was
// added, or neither where there is no room.
func (d *directory) add(k key, newOne func() *session) (there, added *session, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, errShutdown
	}
	if there := d.sessions[k]; there != nil {
		return there, nil, nil
	}
	if mine, all := d.countLocked(k.owner); mine >= d.perOwner || all >= d.total {
		return nil, nil, nil
	}
	added = newOne()
	d.sessions[k] = added
	return nil, added, nil
}

// remove removes a session that has ended or could not be opened.
func (d *directory) remove(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, s.key)
}

// holds reports whether it is this session that the directory has under its key.
func (d *directory) holds(s *session) bool { return d.get(s.key) == s }

// list returns the sessions of an owner, or of all owners when it is "".
func (d *directory) list(o Owner) (all []*session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.sessions {
		if o == "" || k.owner == o {
			all = append(all, s)
		}
	}
	return all
}

// open is list of those that are neither being opened nor ending.
func (d *directory) open(o Owner) []*session {
	return slices.DeleteFunc(d.list(o), func(s *session) bool { return !s.turns.isOpen() })
}

// count returns how many sessions there are, of an owner and of all owners.
func (d *directory) count(o Owner) (mine, all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.countLocked(o)
}

func (d *directory) countLocked(o Owner) (mine, all int) {
	for k := range d.sessions {
		if k.owner == o {
			mine++
		}
	}
	return mine, len(d.sessions)
}

// close has the directory take no more sessions, and returns those that it has.
func (d *directory) close() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return slices.Collect(maps.Values(d.sessions))
}

// unlessClosed calls do, during which the directory is not closed, and reports whether it
// did.
func (d *directory) unlessClosed(do func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		do()
	}
	return !d.closed
}

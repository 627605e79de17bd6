package store

import (
	"context"
	"time"
)

// maxQueued bounds the changes that wait to be written. Beyond it they are all
// dropped, and the index has to be rebuilt: a session's latest row counts once,
// so that this only happens where nothing could be written for long.
const maxQueued = 16384

// change is something to write.
type change func(*conn) error

// job is a transaction that somebody waits for.
type job struct {
	run  change
	done chan error // takes one value
}

// queue is what waits to be written. Store.mu guards it.
type queue struct {
	changes []change
	latest  map[key]int // which of them is a session's row that may still be replaced
	jobs    []job
	lost    bool // changes were dropped, and the file does not say so yet
	// put counts the changes, and tried those up to which all have been written,
	// or tried in vain.
	put, tried uint64
	resting    bool          // the last attempt failed
	moved      chan struct{} // closed after each attempt, and made again
}

func newQueue() queue {
	return queue{latest: map[key]int{}, moved: make(chan struct{})}
}

// drop forgets all changes. They are missing in the file from then on.
func (q *queue) drop() {
	q.lost = q.lost || len(q.changes) > 0
	q.changes = nil
	clear(q.latest)
}

// put queues a session's row, in the place of one that waits already: of each
// session the last is enough.
func (s *Store) put(k key, c change) {
	s.enqueue(func(q *queue) {
		if at, ok := q.latest[k]; ok {
			q.changes[at] = c
			return
		}
		q.add(c)
		q.latest[k] = len(q.changes) - 1
	})
}

// end queues what ends a session: a row that is put later comes after it.
func (s *Store) end(k key, c change) {
	s.enqueue(func(q *queue) {
		delete(q.latest, k)
		q.add(c)
	})
}

func (s *Store) enqueue(add func(*queue)) {
	s.mu.Lock()
	if s.closed || s.retired {
		s.mu.Unlock()
		return
	}
	s.queue.put++
	add(&s.queue)
	s.mu.Unlock()
	s.nudge()
}

func (q *queue) add(c change) {
	if len(q.changes) >= maxQueued {
		q.drop()
	}
	q.changes = append(q.changes, c)
}

func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run opens the file, and writes until the Store is closed.
func (s *Store) run() {
	c, err := s.connect(s.terms.writeTimeout, true)
	if err != nil {
		s.trouble(err)
	}
	close(s.opened)
	defer func() { s.release(c) }()
	var rest *time.Timer
	var rested <-chan time.Time
	for ending := false; !ending; {
		select {
		case <-s.wake:
		case <-rested:
			rested = nil
		case <-s.ctx.Done():
			ending, rested = true, nil
		}
		if rested != nil { // it is still resting
			s.refuseJobs()
			continue
		}
		pause := s.attempt(&c)
		if rest != nil {
			rest.Stop()
		}
		if pause > 0 {
			rest = time.NewTimer(pause)
			rested = rest.C
		}
	}
	if rest != nil {
		rest.Stop()
	}
	s.refuseJobs()
}

// attempt writes everything that waits, and says how long to rest before the
// next attempt.
func (s *Store) attempt(c **conn) time.Duration {
	s.mu.Lock()
	q := &s.queue
	batch, jobs, lost, upTo := q.changes, q.jobs, q.lost, q.put
	q.changes, q.jobs, q.lost = nil, nil, false
	clear(q.latest)
	s.mu.Unlock()

	var err error
	if len(batch) > 0 || lost {
		err = s.transact(c, func(c *conn) error { return apply(c, batch, lost) })
	}
	for _, j := range jobs {
		if err != nil {
			j.done <- err
		} else {
			j.done <- s.transact(c, j.run)
		}
	}
	if err == nil {
		s.settleUp(upTo, nil, false)
		if len(batch) > 0 || lost {
			s.fine()
		}
		return 0
	}
	what := remedyOf(err)
	if what == retire {
		s.retire()
		s.settleUp(upTo, nil, false)
		return 0
	}
	s.trouble(err)
	if what == forget {
		s.settleUp(upTo, nil, true)
		return s.terms.otherRest
	}
	s.settleUp(upTo, batch, lost)
	if isBusy(err) {
		return s.terms.busyRest
	}
	return s.terms.otherRest
}

// settleUp notes the end of an attempt: again is what has to be tried again,
// before what was queued meanwhile.
func (s *Store) settleUp(upTo uint64, again []change, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queue
	if len(again) > 0 {
		q.changes = append(again, q.changes...)
		for k := range q.latest {
			q.latest[k] += len(again)
		}
		if len(q.changes) > maxQueued {
			q.drop()
		}
	}
	q.lost = q.lost || lost
	q.tried = upTo
	q.resting = len(again) > 0 || lost
	close(q.moved)
	q.moved = make(chan struct{})
}

// transact runs f in a transaction on the file as it is now: a file that is no
// longer there, or no good, is made again first, once.
func (s *Store) transact(c **conn, f change) (err error) {
	for range 2 {
		if *c, err = s.renew(*c, s.terms.writeTimeout); err != nil {
			return err
		}
		err = (*c).write(len(s.terms.schema), func() error { return f(*c) })
		again := false
		if *c, again, err = s.after(*c, err); !again {
			return err
		}
	}
	return err
}

func apply(c *conn, batch []change, lost bool) error {
	for _, change := range batch {
		if err := change(c); err != nil {
			return err
		}
	}
	if !lost {
		return nil
	}
	return spoil(c)
}

// await waits until all that was put before is in the file, where a kill does not
// undo it. Its error says that it is not, but will be tried again: the writer
// could not write it now, or that took longer than ctx.
func (s *Store) await(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.queue
	for target := q.put; ; {
		switch {
		case s.closed || s.retired:
			return unavailable("writing to the index")
		case q.lost:
			return ErrIncomplete
		case q.resting:
			return unavailable("writing to the index")
		case q.tried >= target:
			return nil
		}
		moved := q.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil && q.tried < target {
			return unavailable("waiting for the index")
		}
	}
}

// do has the writer run a transaction, after everything that was put before.
func (s *Store) do(ctx context.Context, f change) error {
	j := job{f, make(chan error, 1)}
	s.mu.Lock()
	if s.closed || s.retired {
		s.mu.Unlock()
		return unavailable("writing to the index")
	}
	s.queue.jobs = append(s.queue.jobs, j)
	s.mu.Unlock()
	s.nudge()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuseJobs answers who waits for a transaction that there will be none.
func (s *Store) refuseJobs() {
	s.mu.Lock()
	jobs := s.queue.jobs
	s.queue.jobs = nil
	s.mu.Unlock()
	for _, j := range jobs {
		j.done <- unavailable("writing to the index")
	}
}

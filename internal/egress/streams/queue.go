package streams

// headroom is how many bytes lie free before what a queue gives: an answer begins in them,
// so that what it carries is not copied for it.
const headroom = len(rawHead)

// small is what a queue has room for at first: the head of a message, and a short body.
const small = 8 << 10

// queue is bytes that were put and not taken yet. The zero queue is empty, and has no
// memory; one that has become empty keeps none but what it was given back.
type queue struct {
	buffer []byte
	at     int    // where in buffer they begin: at headroom at least
	spare  []byte // what it was given back, for the next buffer
}

func (q *queue) len() int { return len(q.buffer) - q.at }

// put appends p. There will be most bytes at once, or fewer.
func (q *queue) put(p []byte, most int) {
	if len(p) == 0 {
		return
	}
	need := headroom + q.len() + len(p)
	if len(q.buffer)+len(p) > cap(q.buffer) || q.buffer == nil {
		to := q.buffer
		switch {
		case need <= cap(to): // it moves to the front
		case to == nil && need <= cap(q.spare):
			to, q.spare = q.spare, nil
		case need <= small && need < headroom+most:
			to = make([]byte, 0, min(small, headroom+most))
		default: // more is coming, as a rule
			to = make([]byte, 0, max(need, headroom+most))
		}
		to = to[:headroom+q.len()]
		copy(to[headroom:], q.buffer[q.at:])
		q.buffer, q.at = to, headroom
	}
	q.buffer = append(q.buffer, p...)
}

// read takes as many bytes as p has room for.
func (q *queue) read(p []byte) int {
	n := copy(p, q.buffer[q.at:])
	q.pass(n)
	return n
}

// take takes most bytes, or as many as there are. They are the caller's, with headroom
// bytes before them.
func (q *queue) take(most int) []byte {
	if n := q.len(); n <= most {
		b := q.buffer[q.at-headroom:]
		q.drop()
		return b
	}
	b := make([]byte, headroom+most)
	q.read(b[headroom:])
	return b
}

func (q *queue) pass(n int) {
	if q.at += n; q.len() == 0 {
		q.drop()
	}
}

func (q *queue) drop() { q.buffer, q.at = nil, 0 }

// giveBack takes what take gave, which has no reader any more.
func (q *queue) giveBack(b []byte) {
	if cap(b) > cap(q.spare) {
		q.spare = b
	}
}

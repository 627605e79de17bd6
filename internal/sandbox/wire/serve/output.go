package serve

import (
	"encoding/json"
	"sync"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// Piece is how much output one frame carries at most, in bytes.
const Piece = 64 << 10

// tailBytes is how much of a run's stderr is remembered.
const tailBytes = 4 << 10

// maxMIME is how long a display's type may be, in bytes.
const maxMIME = 200

// Output carries what an instance prints in a run to the server: up to the run's
// limits, and no faster than the server takes it. It is safe for concurrent use.
type Output struct {
	conn *wire.Conn
	id   uint32
	ctl  *Control
	*Window

	mu      sync.Mutex    // guards what follows
	over    chan struct{} // closed when the run has ended; nil without one
	streams [2]stream     // stdout, stderr
	shown   int64         // bytes of displays
	show    int64         // their limit; 0: none
	tail    []byte        // the end of what the run printed on stderr
}

type stream struct {
	limit, printed int64 // a limit of 0: none
	cut            bool
}

// NewOutput makes the output of instance id, whose runs ctl stops.
func NewOutput(conn *wire.Conn, id uint32, ctl *Control) *Output {
	return &Output{conn: conn, id: id, ctl: ctl, Window: NewWindow()}
}

// Begin sets the limits of a run.
func (o *Output) Begin(limits sandbox.RunLimits) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked()
	o.over = make(chan struct{})
	o.streams = [2]stream{{limit: limits.StdoutBytes}, {limit: limits.StderrBytes}}
	o.shown, o.show, o.tail = 0, limits.DisplayBytes, o.tail[:0]
	o.Open()
}

// End is the run's: nothing is sent after it, and nobody waits any more.
func (o *Output) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked()
}

func (o *Output) endLocked() {
	if o.over != nil {
		close(o.over)
		o.over = nil
	}
}

// Cut says what of the latest run's output did not reach the server.
func (o *Output) Cut() (stdout, stderr bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[0].cut, o.streams[1].cut
}

// Tail is the end of what the latest run printed on stderr, 4 KiB at most.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.tail)
}

// Write takes what was printed on stdout (0) or stderr (1). It takes everything
// that belongs to a run, whatever becomes of it: a program is not told of its
// limits. What it gives back was printed without one.
func (o *Output) Write(which int, p []byte) (rest []byte) {
	p, over := o.admit(which, p)
	if over == nil {
		return p
	}
	_, hard := o.ctl.Stops()
	for len(p) > 0 {
		n := o.Reserve(min(len(p), Piece), hard, over)
		if n == 0 {
			if !o.cut(which, over) {
				return p
			}
			return nil
		}
		if o.conn.Write(wire.KindStdout+wire.Kind(which), o.id, p[:n]) != nil {
			return nil // the server is gone, and the process soon will be
		}
		p = p[n:]
	}
	return nil
}

// admit counts what was printed, and gives what of it is to be sent in which run;
// nil: there is none.
func (o *Output) admit(which int, p []byte) ([]byte, chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		return p, nil
	}
	s := &o.streams[which]
	s.printed += int64(len(p))
	if which == 1 {
		o.tail = append(o.tail, p[max(0, len(p)-tailBytes):]...)
		o.tail = append(o.tail[:0], o.tail[max(0, len(o.tail)-tailBytes):]...)
	}
	if s.limit > 0 && s.printed > s.limit {
		s.cut = true
		p = p[:max(0, int64(len(p))-(s.printed-s.limit))]
		o.ctl.Interrupt(sandbox.OutputExceeded)
	}
	return p, o.over
}

// cut says that something printed in a run is lost, unless that has ended.
func (o *Output) cut(which int, run chan struct{}) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over != run {
		return false
	}
	o.streams[which].cut = true
	return true
}

// Display sends something to look at, and tells whether the limit allowed it.
func (o *Output) Display(mime string, data []byte) bool {
	head, err := json.Marshal(wire.DisplayBody{MIME: mime})
	o.mu.Lock()
	n := wire.DisplayBytes(len(data))
	allowed := err == nil && o.over != nil && n <= o.show-o.shown && len(mime) <= maxMIME
	if allowed {
		o.shown += n
	}
	o.mu.Unlock()
	return allowed && o.conn.Write(wire.KindDisplay, o.id, head, []byte{'\n'}, data) == nil
}

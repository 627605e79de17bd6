package worker

import (
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// floodFactor is how far beyond its limit a program may print before it is
// stopped.
const floodFactor = 64

// piece is how much output one frame carries.
const piece = 64 << 10

// output carries what a run prints to the server: up to its limits, and no
// faster than the server takes it.
type output struct {
	conn *wire.Conn
	id   uint32
	ctl  *control

	streams [2]stream // stdout, stderr
	shown   int64     // bytes of displays
	show    int64     // their limit; 0: none
	*window
}

type stream struct {
	kind           wire.Kind
	limit, printed int64
	cut            bool
}

func newOutput(conn *wire.Conn, id uint32, ctl *control) *output {
	return &output{conn: conn, id: id, ctl: ctl, window: newWindow()}
}

// begin sets the limits of a run.
func (o *output) begin(limits sandbox.RunLimits) {
	o.streams = [2]stream{{kind: wire.KindStdout, limit: limits.StdoutBytes}, {kind: wire.KindStderr, limit: limits.StderrBytes}}
	o.shown, o.show = 0, limits.DisplayBytes
	o.open()
}

// write takes what the program printed on stdout (0) or stderr (1). It takes
// everything, whatever becomes of it: a program is not told of its limits.
func (o *output) write(which int, p []byte) {
	s := &o.streams[which]
	s.printed += int64(len(p))
	if s.limit > 0 && s.printed > s.limit {
		s.cut = true
		p = p[:max(0, int64(len(p))-(s.printed-s.limit))]
		if s.printed/floodFactor > s.limit {
			o.ctl.interrupt(sandbox.OutputExceeded)
		}
	}
	_, hard := o.ctl.stops()
	for len(p) > 0 {
		n := o.reserve(min(len(p), piece), hard)
		if n == 0 {
			s.cut = true
			return
		}
		if o.conn.Write(s.kind, o.id, p[:n]) != nil {
			return // the server is gone, and the process soon will be
		}
		p = p[n:]
	}
}

// display sends something to look at, and tells whether the limit allowed it.
func (o *output) display(mime string, head, data []byte) bool {
	if int64(len(data)) > o.show-o.shown || len(mime) > 200 {
		return false
	}
	o.shown += int64(len(data))
	return o.conn.Write(wire.KindDisplay, o.id, head, []byte{'\n'}, data) == nil
}

// input is a program's stdin: the server is asked for a piece when the
// program reads and nothing is there.
type input struct {
	conn   *wire.Conn
	id     uint32
	ctl    *control
	pieces chan []byte // from the server; an empty one ends the input
	rest   []byte
	asked  bool
	ended  bool
}

func newInput(conn *wire.Conn, id uint32, ctl *control) *input {
	return &input{conn: conn, id: id, ctl: ctl, pieces: make(chan []byte, 1), ended: true}
}

// begin starts a run that has input or not.
func (i *input) begin(open bool) {
	select {
	case <-i.pieces: // what the last run asked for and did not take
	default:
	}
	i.rest, i.asked, i.ended = nil, false, !open
}

// push is called when a piece comes from the server. A server that sends what
// it was not asked for loses it.
func (i *input) push(p []byte) {
	select {
	case i.pieces <- p:
	default:
	}
}

// read fills p. 0 bytes is the end of the input; ok is false when the run was
// interrupted before anything came.
func (i *input) read(p []byte) (n int, ok bool) {
	if len(i.rest) == 0 && !i.ended {
		if !i.asked {
			i.asked = true
			if i.conn.Write(wire.KindWantStdin, i.id) != nil {
				i.ended = true
				return 0, true
			}
		}
		soft, _ := i.ctl.stops()
		select {
		case i.rest = <-i.pieces:
			i.asked = false
			i.ended = len(i.rest) == 0
		case <-soft:
			return 0, false
		}
	}
	n = copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, true
}

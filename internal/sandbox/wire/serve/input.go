package serve

import (
	"sync"

	"paddock/internal/sandbox/wire"
)

// Input is a run's standard input: the server is asked for a piece when somebody
// wants to read and nothing is there. It is safe for concurrent use; who wants to
// read takes turns.
type Input struct {
	conn   *wire.Conn
	id     uint32
	pieces chan []byte   // from the server; an empty one ends the input
	turn   chan struct{} // holds a token while somebody waits for a piece

	mu    sync.Mutex    // guards what follows
	over  chan struct{} // closed when the run's input is nobody's any more; nil: it has none
	asked bool          // the server owes a piece
}

// NewInput makes the input of instance id.
func NewInput(conn *wire.Conn, id uint32) *Input {
	return &Input{conn: conn, id: id, pieces: make(chan []byte, 1), turn: make(chan struct{}, 1)}
}

// Begin starts a run that has input or not. Who still waits for the last one's
// finds its end.
func (i *Input) Begin(open bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endLocked()
	select {
	case <-i.pieces: // what the last run asked for and did not take
	default:
	}
	if open {
		i.over = make(chan struct{})
	}
}

func (i *Input) endLocked() {
	if i.over != nil {
		close(i.over)
	}
	i.over, i.asked = nil, false
}

// Push is called when a piece comes from the server. A server that sends what
// it was not asked for loses it.
func (i *Input) Push(p []byte) {
	select {
	case i.pieces <- p:
	default:
	}
}

// Next gives the next piece; an empty one is the end of the input. ok is false
// when stop was closed before anything came: what then comes is the next one's.
func (i *Input) Next(stop <-chan struct{}) (p []byte, ok bool) {
	if !i.takeTurn(stop) {
		return nil, false
	}
	defer func() { <-i.turn }()
	over, err := i.want()
	if over == nil || err != nil {
		return nil, true
	}
	select {
	case p = <-i.pieces:
		i.came(p, over)
		return p, true
	case <-over:
		return nil, true
	case <-stop:
		return nil, false
	}
}

// takeTurn waits for the turn, unless it is free, until stop is closed.
func (i *Input) takeTurn(stop <-chan struct{}) bool {
	select {
	case i.turn <- struct{}{}:
		return true
	default:
	}
	select {
	case i.turn <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

// want asks the server, unless it owes a piece already, and gives which run's
// input it is; nil: nothing more will come.
func (i *Input) want() (chan struct{}, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over == nil || i.asked {
		return i.over, nil
	}
	i.asked = true
	err := i.conn.Write(wire.KindWantStdin, i.id)
	if err != nil {
		i.endLocked()
	}
	return i.over, err
}

func (i *Input) came(p []byte, run chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over != run {
		return
	}
	i.asked = false
	if len(p) == 0 {
		i.endLocked()
	}
}

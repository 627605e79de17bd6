package serve

import (
	"sync"

	"paddock/internal/sandbox/wire"
)

// Window is how many bytes may still be sent to the server. It is safe for
// concurrent use.
type Window struct {
	mu     sync.Mutex // guards credit
	credit int
	news   chan struct{} // holds one token when credit may have come
}

// NewWindow makes one that is open.
func NewWindow() *Window { return &Window{credit: wire.Window, news: make(chan struct{}, 1)} }

// Open makes it what it is at first.
func (w *Window) Open() {
	w.mu.Lock()
	w.credit = wire.Window
	w.mu.Unlock()
	w.tell()
}

// Grant is called when the server has passed on n bytes.
func (w *Window) Grant(n int) {
	w.mu.Lock()
	w.credit = min(w.credit+max(n, 0), wire.Window)
	w.mu.Unlock()
	w.tell()
}

func (w *Window) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Reserve waits until something may be sent, and gives how much of n; 0 when
// one of the channels was closed meanwhile.
func (w *Window) Reserve(n int, stop, over <-chan struct{}) int {
	for {
		w.mu.Lock()
		if w.credit > 0 {
			n = min(n, w.credit)
			w.credit -= n
			left := w.credit
			w.mu.Unlock()
			if left > 0 {
				w.tell() // there may be others who wait
			}
			return n
		}
		w.mu.Unlock()
		select {
		case <-w.news:
		case <-stop:
			return 0
		case <-over:
			return 0
		}
	}
}

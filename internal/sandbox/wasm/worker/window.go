package worker

import (
	"sync"

	"paddock/internal/sandbox/wire"
)

// window is how many bytes may still be sent to the server.
type window struct {
	mu     sync.Mutex // guards credit
	credit int
	news   chan struct{} // holds one token when credit may have come
}

func newWindow() *window { return &window{credit: wire.Window, news: make(chan struct{}, 1)} }

// open makes it what it is at first.
func (w *window) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.credit = wire.Window
}

// grant is called when the server has passed on n bytes.
func (w *window) grant(n int) {
	w.mu.Lock()
	w.credit = min(w.credit+max(n, 0), wire.Window)
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// reserve waits until something may be sent, and gives how much of n; 0 when
// stop was closed meanwhile.
func (w *window) reserve(n int, stop <-chan struct{}) int {
	for {
		w.mu.Lock()
		if w.credit > 0 {
			n = min(n, w.credit)
			w.credit -= n
			w.mu.Unlock()
			return n
		}
		w.mu.Unlock()
		select {
		case <-w.news:
		case <-stop:
			return 0
		}
	}
}

package session

import (
	"io"
	"slices"
	"sync"

	"paddock/internal/sandbox"
)

// recorder keeps what was printed, up to a limit, and passes all of it on.
type recorder struct {
	limit int64
	also  io.Writer
	data  []byte
	cut   bool
}

// begin has it go on after what was printed before.
func (r *recorder) begin(data []byte, cut bool) {
	r.data, r.cut, r.limit = slices.Clone(data), cut, max(r.limit, int64(len(data)))
}

func (r *recorder) Write(p []byte) (int, error) {
	keep := p
	if room := r.limit - int64(len(r.data)); int64(len(keep)) > room {
		keep, r.cut = keep[:room], true
	}
	r.data = append(r.data, keep...)
	if r.also != nil {
		if n, err := r.also.Write(p); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// displays collects what was shown.
type displays struct {
	mu  sync.Mutex
	all []sandbox.Display
}

func (d *displays) add(one sandbox.Display) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

func (d *displays) take() []sandbox.Display {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all
}

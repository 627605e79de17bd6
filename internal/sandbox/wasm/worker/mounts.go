package worker

import (
	"context"

	"paddock/guest"
)

// libraryPath is where a guest finds its language's own library.
const libraryPath = "/lib/python"

// loadAll loads every program there is.
func (l *loader) loadAll(ctx context.Context) error {
	errs := make(chan error)
	names := guest.Available()
	for _, name := range names {
		go func() {
			_, err := l.load(ctx, name, false)
			errs <- err
		}()
	}
	var first error
	for range names {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}


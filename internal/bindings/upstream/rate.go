package upstream

import (
	"context"
	"time"
)

// Rate lets so many calls begin within any minute, whoever makes them; others wait, in
// their order. It may be used by any number of goroutines. A nil Rate lets all begin.
type Rate struct {
	turn chan struct{} // holds one token while somebody waits for the next begin
	// began has when the last calls began, the oldest at next.
	began []time.Time
	next  int
}

// NewRate gives a Rate of so many calls in a minute; nil for none at all.
func NewRate(perMinute int) *Rate {
	if perMinute <= 0 {
		return nil
	}
	return &Rate{turn: make(chan struct{}, 1), began: make([]time.Time, perMinute)}
}

// wait returns when a call may begin, which counts from then on. Who stops waiting has
// taken nothing from others.
func (r *Rate) wait(ctx context.Context) error {
	if r == nil {
		return ctx.Err()
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if oldest := r.began[r.next]; !oldest.IsZero() {
		timer := time.NewTimer(time.Until(oldest.Add(time.Minute)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.began[r.next] = time.Now()
	r.next = (r.next + 1) % len(r.began)
	return nil
}

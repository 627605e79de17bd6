package web

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"paddock/internal/fault"
)

const (
	// maxFailures is how many requests of an address may be refused in a minute
	// before the answer is to wait. Who has a token comes in all the same: an
	// address is shared by all of a machine, or of a house.
	maxFailures = 300
	// maxFailing bounds the addresses that are remembered; further ones count as
	// one. An IPv6 address counts with all of its network of 64 bits, which
	// one machine can have whole.
	maxFailing = 1024
	// failurePeriod is how long failures count, and how often they are told.
	failurePeriod = time.Minute
	// failureSweep is how often it is looked what is to be told and forgotten.
	failureSweep = 10 * time.Second
)

// Failures are requests from one address of which nobody could say whose they
// are.
type Failures struct {
	From  netip.Addr // the last one's; the zero Addr: not known
	Count int        // since it was told last
	Last  error      // why, of the last one
}

// failures counts them by address. It is safe for concurrent use.
type failures struct {
	mu sync.Mutex
	by map[netip.Prefix]*failing // guarded; the zero Prefix: those that there was no room for
}

// failing is one address, or the network of one.
type failing struct {
	began  time.Time // of the period that is counted now
	count  int       // in it, of those that count
	untold Failures
}

// refuse says that there are too many of an address; nil: there are not.
func (f *failures) refuse(from netip.Addr, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, known := f.by[f.keyLocked(from)]
	if !known || a.count < maxFailures {
		return nil
	}
	left := a.began.Add(failurePeriod).Sub(now)
	if left <= 0 {
		return nil
	}
	full := fault.New(fault.Exhausted, "too many requests from this address had no valid token").WithHint("wait a minute, and send a valid token")
	full.RetryAfter = left
	return full
}

// add counts one that failed. What it gives is to be told now; a Count of zero:
// it will be told with others, see due.
func (f *failures) add(from netip.Addr, err error, now time.Time) Failures {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.keyLocked(from)
	a, known := f.by[key]
	if !known {
		if f.by == nil {
			f.by = map[netip.Prefix]*failing{}
		}
		a = &failing{}
		f.by[key] = a
	}
	first := now.Sub(a.began) >= failurePeriod
	if first {
		a.began, a.count = now, 0
	}
	if fault.KindOf(err) == fault.Denied {
		a.count++
	}
	a.untold = Failures{from, a.untold.Count + 1, err}
	if !first {
		return Failures{}
	}
	return a.take()
}

// take gives what is to be told, once.
func (a *failing) take() Failures {
	told := a.untold
	a.untold = Failures{}
	return told
}

// due gives what waits to be told of periods that are over, each of which
// begins the next; ending: all that waits. Addresses of which nothing waits
// are forgotten.
func (f *failures) due(now time.Time, ending bool) (told []Failures) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, a := range f.by {
		if now.Sub(a.began) < failurePeriod && !ending {
			continue
		}
		if a.untold.Count == 0 {
			delete(f.by, key)
			continue
		}
		told = append(told, a.take())
		a.began, a.count = now, 0
	}
	return told
}

// keyLocked gives what an address is counted as.
func (f *failures) keyLocked(from netip.Addr) netip.Prefix {
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	key, _ := from.WithZone("").Prefix(bits) // of the zero Addr: the zero Prefix
	if _, known := f.by[key]; !known && len(f.by) >= maxFailing {
		return netip.Prefix{}
	}
	return key
}

// failed counts a request of which nobody could say whose it is, and tells of
// it now or later.
func (s *Server) failed(ctx context.Context, from *sender, err error) {
	if told := s.failures.add(from.client, err, time.Now()); told.Count > 0 {
		s.config.Observer.RequestsFailed(ctx, told)
	}
}

// tellFailures tells of what was not told at once, until ctx ends: then of all
// that is left.
func (s *Server) tellFailures(ctx context.Context) {
	tick := time.NewTicker(failureSweep)
	defer tick.Stop()
	for ending := false; !ending; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ending = true
		}
		for _, told := range s.failures.due(time.Now(), ending) {
			s.config.Observer.RequestsFailed(context.WithoutCancel(ctx), told)
		}
	}
}

package proxy

import (
	"cmp"
	"sync/atomic"
	"time"

	"paddock/internal/fault"
)

// Budgets bound what a session may do through its proxy, from its beginning to its end.
// Zeros are what the comments say, and negative numbers no bound.
type Budgets struct {
	// Connections is how many of the program's connections may be open at once; zero: 128.
	// curl -Z opens 50, npm 15 and pip 10, and one costs the host about 40 KiB.
	Connections int
	// Requests is how many requests there may be in all, refused ones too; zero: 100,000.
	// A program that asks once a second for a day makes 86,400, and 100,000 records are
	// some 30 MB of audit log.
	Requests int64
	// Sent is how many bytes may leave, headers too; zero: 1 GiB. What a program takes out
	// is what it could steal, so this is the smaller number; a large push fits.
	Sent int64
	// Received is how many may come in; zero: 10 GiB, which is more than the largest
	// installations of packages need, and ends an answer without an end.
	Received int64
	// HeaderBytes bounds the header of a request and of an answer, each; zero: 64 KiB.
	// Servers take 8 to 32.
	HeaderBytes int
	// Connect bounds finding, dialling and greeting a host, each; zero: 10 s.
	Connect time.Duration
	// Header is how long a program may take for the header of a request, and for its part
	// of a TLS handshake; zero: 30 s.
	Header time.Duration
	// Idle is how long a request may stand still: no byte moves, in neither direction;
	// zero: 5 min. Models that think before they answer take up to that.
	Idle time.Duration
	// Kept is how long a connection of the program's may stay open between two requests;
	// zero: 2 min.
	Kept time.Duration
	// Longest is how long one request may take as a whole; zero: 1 h.
	Longest time.Duration
}

// filled puts the defaults in.
func (b Budgets) filled() Budgets {
	b.Connections = cmp.Or(b.Connections, 128)
	b.Requests = cmp.Or(b.Requests, 100_000)
	b.Sent = cmp.Or(b.Sent, 1<<30)
	b.Received = cmp.Or(b.Received, 10<<30)
	b.HeaderBytes = cmp.Or(max(b.HeaderBytes, 0), 64<<10)
	b.Connect = cmp.Or(max(b.Connect, 0), 10*time.Second)
	b.Header = cmp.Or(b.Header, 30*time.Second)
	b.Idle = cmp.Or(b.Idle, 5*time.Minute)
	b.Kept = cmp.Or(b.Kept, 2*time.Minute)
	b.Longest = cmp.Or(b.Longest, time.Hour)
	return b
}

// Usage is what a session has used of its budgets. Bytes are those of headers and bodies,
// without what TLS adds, and not those of hosts that paddock serves itself.
type Usage struct {
	Requests int64 `json:"requests"`
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

// budget counts.
type budget struct {
	requests, sent, received *account
}

// account is one number with a bound; a negative bound is none.
type account struct {
	bound int64
	used  atomic.Int64
	what  string
}

func newBudget(b Budgets, used Usage) budget {
	n := budget{
		requests: &account{bound: b.Requests, what: "requests"},
		sent:     &account{bound: b.Sent, what: "bytes sent"},
		received: &account{bound: b.Received, what: "bytes received"},
	}
	n.requests.used.Store(used.Requests)
	n.sent.used.Store(used.Sent)
	n.received.used.Store(used.Received)
	return n
}

func (b budget) usage() Usage {
	return Usage{b.requests.used.Load(), b.sent.used.Load(), b.received.used.Load()}
}

// spent says that nothing is left, before anything more is taken.
func (b budget) spent() error {
	for _, a := range []*account{b.sent, b.received} {
		if a.bound >= 0 && a.used.Load() >= a.bound {
			return a.exhausted()
		}
	}
	return nil
}

// take counts n, and says when that is more than there may be.
func (a *account) take(n int64) error {
	if used := a.used.Add(n); a.bound >= 0 && used > a.bound {
		return a.exhausted()
	}
	return nil
}

func (a *account) exhausted() error {
	return fault.New(fault.Exhausted, "the session has used up its network budget of %d %s", a.bound, a.what).
		WithHint("what is left can be done in another session; the operator can allow more")
}

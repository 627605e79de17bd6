package pkgproxy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"time"

	"paddock/internal/limit"
)

// What Config leaves open of the front's bounds.
const (
	defaultRequests    = 32
	defaultAllRequests = 512
)

// sendTime is how long a client may take nothing of what it is sent.
const sendTime = time.Minute

func newSlots(c Config) (*limit.Gate, error) {
	each, all := cmp.Or(c.Requests, defaultRequests), cmp.Or(c.AllRequests, defaultAllRequests)
	// Each wait ends with its request, and never before.
	return limit.New(limit.Config{Executions: each, TotalExecutions: all, Wait: math.MaxInt64})
}

// askerKey is where a context has for whom work is done.
type askerKey struct{}

// asker is for whom work is done.
type asker struct {
	owner    string
	reserved bool // what work takes is taken already
}

// reserve takes bytes from the budget for whom a context is of, unless all that the work
// takes is taken already: who holds some and waits for more could wait for itself.
func (p *Packages) reserve(ctx context.Context, n int64) (release func(), err error) {
	a, _ := ctx.Value(askerKey{}).(asker)
	if a.reserved {
		return func() {}, nil
	}
	return p.config.Budget.Acquire(ctx, a.owner, n)
}

// serve answers one request of an owner's.
func (p *Packages) serve(w http.ResponseWriter, r *http.Request, owner string) {
	leave, err := p.slots.Enter(r.Context(), owner)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer leave()
	s := &sending{ResponseWriter: w, control: http.NewResponseController(w)}
	defer s.end()
	p.handler.ServeHTTP(s, r.WithContext(context.WithValue(r.Context(), askerKey{}, asker{owner: owner})))
}

// sending ends an answer of which the client has taken nothing for a while.
type sending struct {
	http.ResponseWriter
	control *http.ResponseController
	fixed   bool // the connection knows no deadlines
}

// Write implements [http.ResponseWriter].
func (s *sending) Write(b []byte) (int, error) {
	if !s.fixed {
		s.fixed = errors.Is(s.control.SetWriteDeadline(time.Now().Add(sendTime)), http.ErrNotSupported)
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (s *sending) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// end leaves the connection as it was.
func (s *sending) end() {
	if !s.fixed {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
}

// slow tells whether a client did not take what it was sent.
func slow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

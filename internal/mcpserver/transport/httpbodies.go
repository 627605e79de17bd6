package transport

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"paddock/internal/fault"
	"paddock/internal/membudget"
	"paddock/internal/session"
)

// Bounds of the large bodies that are in hand at the same time, in bytes. One
// that is larger than small costs its memory several times while it is decoded.
const (
	smallBody   = 64 << 10
	ownerBodies = 32 << 20
	allBodies   = 128 << 20
	// decoded is how many times its size a body takes with what is made of it: its bytes,
	// the texts in them, and the SDK's copy of both.
	decoded = 4
	// mostDecoded bounds what is asked of the budget for one body, where the operator
	// allows larger ones than by default.
	mostDecoded = 64 << 20
)

// weighBody has the request hold what its body of so many bytes takes (-1: not known),
// in the budget of what the server holds for its callers.
func weighBody(ctx context.Context, length int64) error {
	if length <= smallBody {
		return nil
	}
	return membudget.Hold(ctx, min(decoded*length, mostDecoded))
}

// refuseBody says that there is no memory for a body.
func refuseBody(w http.ResponseWriter, err error) {
	p := fault.ProblemOf(err)
	w.Header().Set("Retry-After", strconv.Itoa(max(p.RetryAfter, 1)))
	refuseHTTP(w, http.StatusTooManyRequests, refuse(nil, jsonrpc.CodeInvalidRequest, "%s", p.Line()))
}

// bodies counts the large bodies in hand.
type bodies struct {
	mu    sync.Mutex // guards what follows
	all   int64
	owner map[session.Owner]int64
}

// take takes a body of so many bytes (-1: at most as many as may be) in hand.
func (b *bodies) take(owner session.Owner, length, most int64) (release func(), ok bool) {
	if length < 0 {
		length = most
	}
	if length <= smallBody {
		return func() {}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.owner[owner]; own > 0 && own+length > ownerBodies || b.all > 0 && b.all+length > allBodies {
		return nil, false
	}
	if b.owner == nil {
		b.owner = map[session.Owner]int64{}
	}
	b.all += length
	b.owner[owner] += length
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all -= length
		if b.owner[owner] -= length; b.owner[owner] == 0 {
			delete(b.owner, owner)
		}
	}, true
}

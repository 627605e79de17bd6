package transport

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// headerKept names the session of requests that name none in their arguments, as what
// follows /s/ in the address does.
const headerKept = "Paddock-Session"

// KeptPath is what stands between the endpoint's path and a session's name.
const KeptPath = "/s/"

// SessionPattern is what the name of a session looks like.
const SessionPattern = `^[\w-]{1,100}$`

var sessionName = regexp.MustCompile(SessionPattern)

// IsSessionName reports whether a text can be the name of a session.
func IsSessionName(s string) bool { return sessionName.MatchString(s) }

// NamedSession is the session that a request's address names, once a [Handler] has checked
// it; empty: it names none.
func NamedSession(c Caller) session.ID { return session.ID(c.Header.Get(headerKept)) }

// named settles which session a request's address names, and leaves it in headerKept,
// where everything behind looks. The name is the principal's own: with another one's
// token it is another session.
func (h *Handler) named(r *http.Request) *refusal {
	given := r.Header.Values(headerKept)
	name, inPath := strings.CutPrefix(r.URL.Path, h.config.Path+KeptPath)
	switch {
	case len(given) > 1:
		return refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: the header %s stands twice", headerKept)
	case inPath && len(given) == 1 && given[0] != name:
		return refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: the URL and the header %s name different sessions", headerKept)
	case !inPath && len(given) == 0:
		return nil
	case !inPath:
		name = given[0]
	}
	if !IsSessionName(name) {
		no := fault.New(fault.Invalid, "%s is not a session's name", textsafe.QuoteShort(name)).WithHint("a name has 1 to 100 letters, digits, - and _")
		return refuse(nil, jsonrpc.CodeInvalidRequest, "%s", fault.ProblemOf(no).Line())
	}
	r.Header.Set(headerKept, name)
	return nil
}

package secret

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"paddock/internal/fault"
)

// DefaultPlaces are where a value may stand unless something else is said: in a header, as
// most servers want it, and in the password of basic authentication.
var DefaultPlaces = []string{"header", "basic"}

// places are where a value may stand in a request. The zero places are nowhere.
type places struct {
	header, basic, body bool
	headers, query      []string // by name
}

// parsePlaces reads them: header, header:NAME, basic, query:NAME and body.
func parsePlaces(texts []string) (p places, err error) {
	for _, text := range texts {
		kind, name, named := strings.Cut(text, ":")
		switch {
		case text == "header":
			p.header = true
		case text == "basic":
			p.basic = true
		case text == "body":
			p.body = true
		case kind == "header" && httpguts.ValidHeaderFieldName(name) && !slices.Contains(framing, http.CanonicalHeaderKey(name)):
			p.headers = append(p.headers, http.CanonicalHeaderKey(name))
		case kind == "query" && named && name != "" && len(name) <= 200:
			p.query = append(p.query, name)
		default:
			return places{}, fault.New(fault.Invalid, "%.100q is not a place of a request for a secret", text).
				WithHint("places are header, header:NAME, basic, query:NAME and body")
		}
	}
	return p, nil
}

func (p places) needHeader() bool { return p.header || len(p.headers) > 0 }

// framing are headers that say how a request is read: no value stands there.
var framing = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// told are headers that servers write down or give to others, or that many requests
// have by themselves: a value stands there only where that very header is named.
var told = append([]string{"Accept", "Accept-Encoding", "Accept-Language", "Baggage", "Cache-Control", "Cookie", "Cookie2", "Forwarded", "From", "If-Match", "If-Modified-Since",
	"If-None-Match", "If-Range", "If-Unmodified-Since", "Max-Forwards", "Origin", "Range", "Referer", "Traceparent", "Tracestate", "User-Agent", "Via",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id"}, framing...)

// inHeader tells whether a value may stand in a header.
func (p places) inHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return slices.Contains(p.headers, name) || p.header && !slices.Contains(told, name)
}

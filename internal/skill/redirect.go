package skill

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"paddock/internal/fault"
)

// mostRedirects is how often a request may be sent on.
const mostRedirects = 10

// sameOrigin has credentials go to the origin (scheme, host and port) that a request was
// for, and to nobody whom a redirect names: it is an [http.Client]'s CheckRedirect.
// Go's own rule looks at hosts alone.
func sameOrigin(r *http.Request, via []*http.Request) error {
	if len(via) >= mostRedirects {
		return fault.New(fault.Unavailable, "%s sends on and on", via[0].URL.Hostname()).WithHint("name the address that it leads to")
	}
	for _, on := range append(via[1:len(via):len(via)], r) {
		if originOf(on.URL) != originOf(via[0].URL) {
			for _, header := range []string{"Authorization", "Cookie", "Proxy-Authorization", "Www-Authenticate"} {
				r.Header.Del(header)
			}
		}
	}
	return nil
}

func originOf(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[scheme])
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

package preview

import (
	"net/http"

	"paddock/internal/web"
)

// Paths are the paths of the API that a Handler answers. The addresses of previews are
// hosts of their own.
func Paths() []web.Path {
	all := sessionsPath + "{id}/" + what
	return []web.Path{
		{Pattern: all, Methods: []string{http.MethodGet, http.MethodPost, http.MethodDelete}, Access: web.CoreSet, Doc: "Lists, makes (`{\"port\": …, \"path\": …, \"ttl_seconds\": …}`) or revokes links that open a port of the session in a browser."},
		{Pattern: all + "/{preview}", Methods: []string{http.MethodDelete}, Access: web.CoreSet, Doc: "Revokes one of them."},
	}
}

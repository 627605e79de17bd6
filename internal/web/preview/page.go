package preview

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/web"
)

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>paddock: {{.Message}}</title>
<h1>{{.Message}}</h1>
{{with .Hint}}<p>{{.}}</p>
{{end}}<p><small>This is paddock, not the program that is shown here.</small></p>
</html>
`))

// fail answers with an error, as a page where a browser shows it.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.Of(err)
	if f.Kind == fault.Internal {
		h.config.Log.WarnContext(r.Context(), "a preview failed", web.Attr(r.Context()), "error", f.Message, "cause", fault.CauseOf(err))
	}
	status := statusOf(err)
	problem := web.Describe(w, f, status)
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		head.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_ = page.Execute(w, problem) // whoever does not read has gone
		}
		return
	}
	head.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(map[string]fault.Problem{"error": problem})
	}
}

// statusOf is the HTTP status of an error: that a program does not answer is 502.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errWorker):
		return http.StatusForbidden
	}
	k := fault.KindOf(err)
	if own := web.Status(err); own != web.StatusOf(k) { // that of a body which is too large, or too slow
		return own
	}
	switch k {
	case fault.Unavailable:
		return http.StatusBadGateway
	case fault.Conflict:
		return http.StatusServiceUnavailable
	default:
		return web.StatusOf(k)
	}
}

// Package console serves the pages of the console: what make built of its sources, and the
// sessions that they list.
package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
)

// Config sets a Handler up. It is copied.
type Config struct {
	// Files are those that make built; one without index.html has no console.
	Files fs.FS
	// Sessions lists an owner's.
	Sessions func(session.Owner) ([]session.Info, error)
}

// Handler serves / and what is below /console/.
type Handler struct {
	config Config
	files  map[string]file // by path
}

var _ http.Handler = (*Handler)(nil)

// file is one of the console's, whole.
type file struct {
	content   []byte
	kind, tag string
}

// SessionsPath is where the console has the sessions of who is signed in.
const SessionsPath = "/console/sessions"

// types are those of the console's files; others are not served.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8"}

// Built reports whether there is a console among the files.
func Built(files fs.FS) bool {
	_, err := fs.Stat(files, "index.html")
	return err == nil
}

// New makes a Handler, and reads the files.
func New(config Config) (*Handler, error) {
	if config.Files == nil || config.Sessions == nil {
		return nil, errors.New("console: files and sessions are needed")
	}
	h := &Handler{config: config, files: map[string]file{}}
	names, err := fs.Glob(config.Files, "*.*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		kind := types[path.Ext(name)]
		if kind == "" {
			continue
		}
		content, err := fs.ReadFile(config.Files, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		at := "/console/" + name
		if name == "index.html" {
			at = "/"
		}
		h.files[at] = file{content, kind, `"` + hex.EncodeToString(sum[:16]) + `"`}
	}
	return h, nil
}

// policy lets the pages load what is here and send requests to here, and nothing else: a
// text that became markup by a mistake would do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// NotBuilt is what / says in a paddock that was built without its console.
const NotBuilt = "This paddock was built without its console: run make in paddock's source folder, which builds both.\n"

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == SessionsPath {
		h.sessions(w, r)
		return
	}
	head := w.Header()
	f, there := h.files[r.URL.Path]
	if !there {
		head.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		text := "The console has no such file.\n"
		if _, built := h.files["/"]; !built {
			text = NotBuilt
		}
		if r.Method != http.MethodHead {
			_, _ = w.Write([]byte(text)) // whoever does not read has gone
		}
		return
	}
	head.Set("Content-Type", f.kind)
	head.Set("Content-Security-Policy", policy)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	head.Set("Cache-Control", "no-cache") // it is asked whether there is another
	head.Set("ETag", f.tag)
	head.Add("Vary", "Accept")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

// shown is a session as the list has it.
type shown struct {
	ID         session.ID `json:"session_id"`
	Name       string     `json:"name"`
	Language   string     `json:"language"`
	Isolation  string     `json:"isolation"`
	Image      string     `json:"image"`
	State      string     `json:"state"`
	Created    time.Time  `json:"created_at"`
	LastUsed   time.Time  `json:"last_used_at"`
	Expires    time.Time  `json:"expires_at"`
	Executions int64      `json:"execution_count"`
	Waiting    bool       `json:"waiting"` // for a person
}

// sessions lists those of who asks, the last used first.
func (h *Handler) sessions(w http.ResponseWriter, r *http.Request) {
	who := auth.From(r.Context())
	var all []session.Info
	err := error(fault.New(fault.Denied, "the request has no principal"))
	if who != nil {
		all, err = h.config.Sessions(session.Owner(who.ID))
	}
	status, content := http.StatusOK, any(nil)
	if err == nil {
		list := make([]shown, 0, len(all))
		for _, i := range all {
			list = append(list, show(i))
		}
		content = map[string][]shown{"sessions": list}
	} else {
		status = web.StatusOf(fault.KindOf(err))
		content = map[string]fault.Problem{"error": web.Describe(w, err, status)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(content) // whoever does not read has gone
	}
}

func show(i session.Info) shown {
	s := shown{
		ID: i.ID, Name: i.Settings.Name, Language: i.Settings.Language, Isolation: i.Isolation, State: string(i.State),
		Created: i.CreatedAt, LastUsed: i.LastUsedAt, Expires: i.ExpiresAt, Executions: i.Executions, Waiting: i.Waiting != nil,
	}
	if m := i.Settings.Machine; m != nil {
		s.Image = strings.TrimSpace(m.Image)
	}
	return s
}

// Paths are the paths that a Handler answers.
func Paths() []web.Path {
	get := []string{http.MethodGet}
	return []web.Path{
		{Pattern: "/", Methods: get, Access: web.Anyone, Doc: "The console, for browsers: with `text/html` in `Accept`. Others are told that there is nothing."},
		{Pattern: "/console/{file}", Methods: get, Access: web.Anyone, Doc: "A file of the console."},
		{Pattern: SessionsPath, Methods: get, Access: web.AnyToken, Doc: "The sessions of who asks, as the console lists them; it may change with that."},
	}
}

package files

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// maxLinkRequest bounds the JSON that asks for a link.
const maxLinkRequest = 32 << 10

// newLink makes a link to a file for the principal, which lives no longer than
// they do.
func (t target) newLink(w http.ResponseWriter, r *http.Request, _ *workspace.Tree) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refusal{fault.New(fault.Invalid, "the body's type has to be application/json").WithHint("send Content-Type: application/json"), http.StatusUnsupportedMediaType}
	}
	ask := struct {
		Path   string `json:"path"`
		Method string `json:"method"`
		TTL    int64  `json:"ttl_seconds"`
	}{Method: http.MethodGet}
	in := json.NewDecoder(io.LimitReader(body{r.Context(), r.Body}, maxLinkRequest))
	in.DisallowUnknownFields()
	if err := in.Decode(&ask); err != nil {
		var own broken
		if errors.As(err, &own) {
			return err
		}
		return fault.New(fault.Invalid, "the body is not what is expected").WithHint(`send {"path": "…", "method": "GET" or "PUT", "ttl_seconds": 600}`).WithCause(err)
	}
	if ask.TTL < 0 || ask.TTL > int64(MaxTTL/time.Second) {
		return fault.New(fault.Invalid, "ttl_seconds lies between 1 and %d", int64(MaxTTL/time.Second)).WithHint("omit it for %d", int64(DefaultTTL/time.Second))
	}
	ttl := time.Duration(ask.TTL) * time.Second
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if p := auth.From(r.Context()); !p.Expires.IsZero() {
		ttl = min(ttl, time.Until(p.Expires))
	}
	link, err := t.config.Links.New(t.owner, t.id, ask.Path, ask.Method, ttl)
	if t.config.Moved != nil {
		t.config.Moved(r.Context(), Moved{Owner: t.owner, Session: t.id, Path: ask.Path, Write: ask.Method == http.MethodPut, Link: true, Err: err})
	}
	if err != nil {
		return err
	}
	if t.config.Base != nil {
		link.URL = t.config.Base(r.Context()) + link.URL
	}
	answer(w, r, http.StatusCreated, link)
	return nil
}

// serveLink does what a link allows. It is used up right before the file moves:
// what is refused earlier, such as a file that is not there yet, leaves it good.
func (h *Handler) serveLink(w http.ResponseWriter, r *http.Request, token string) error {
	if h.config.Links == nil {
		return errNowhere
	}
	if err := only(w, r, http.MethodGet, http.MethodPut); err != nil {
		return err
	}
	permit, err := h.config.Links.check(token)
	if err != nil {
		return err
	}
	switch err := h.config.Access.Alive(permit.Owner); {
	case fault.KindOf(err) == fault.Denied:
		return errLink
	case err != nil:
		return err
	}
	if err := only(w, r, permit.Method); err != nil {
		return err
	}
	release, err := h.config.Access.Admit(permit.Owner)
	if err != nil {
		return err
	}
	defer release()
	t := target{Handler: h, owner: permit.Owner, id: permit.Session, path: permit.Path}
	tree, done, err := t.files()
	if err != nil {
		return err
	}
	defer done()
	if r.Method == http.MethodPut {
		if err := checkUpload(r); err != nil {
			return err
		}
		if err := h.config.Links.use(permit); err != nil {
			return err
		}
		err := t.put(w, r, tree)
		t.moved(r, err)
		return err
	}
	f, about, err := tree.OpenFile(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := h.config.Links.use(permit); err != nil {
		return err
	}
	err = send(w, r, f, about)
	t.moved(r, err)
	return err
}

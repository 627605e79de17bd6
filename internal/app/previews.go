package app

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/internal/audit"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

// previews are those of a state folder: a server serves them, and commands make them too. It
// observes sessions ([session.Observer]), whose previews end with them.
type previews struct {
	store *preview.Store
	dir   string
	log   *slog.Logger
}

// previewKeyBytes is how long the key is that signs them.
const previewKeyBytes = 32

func (env *Env) newPreviews() *previews {
	dir := filepath.Join(env.StateDir, "previews")
	made := caSeeds{dir: env.StateDir, vault: env.Vault()}
	return &previews{dir: dir, log: env.Log, store: preview.Open(dir, func() ([]byte, error) {
		secret, err := made.secret()
		if err != nil {
			return nil, err
		}
		return hkdf.Key(sha256.New, secret, nil, "paddock previews", previewKeyBytes)
	})}
}

// Record implements [session.Observer].
func (v *previews) Record(context.Context, session.Event) error { return nil }

// Removed implements [session.Observer].
func (v *previews) Removed(owner session.Owner, id session.ID) {
	if _, err := v.store.Revoke(owner, id, nil); err != nil {
		// They open nothing: the session that they are of is not there.
		v.log.Warn("the previews of a session that has ended are left", "session", id, "cause", fault.CauseOf(err))
	}
}

// newPreviewHandler makes what serves previews. url gives the address of one by its id.
func (a *App) newPreviewHandler(url func(id string) string, beyond beyondFunc, answerTimeout time.Duration) (*preview.Handler, error) {
	h, err := preview.New(preview.Config{
		Sessions: a.Sessions, Store: a.previews.store, URL: url, Alive: a.alive(), Beyond: beyond,
		Told: a.previewed, AnswerTimeout: answerTimeout, Log: a.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the previews: %w", err)
	}
	return h, nil
}

// makePreview makes a preview for a tool: the URL that opens it, and until when.
type makePreview = func(context.Context, session.Owner, session.ID, uint16, string) (string, time.Time, error)

// previewMaker makes previews that h serves.
func previewMaker(h *preview.Handler) makePreview {
	return func(ctx context.Context, _ session.Owner, id session.ID, port uint16, path string) (string, time.Time, error) {
		made, err := h.New(ctx, id, port, path, 0)
		return made.URL, made.Expires, err
	}
}

// previewed records who made, opened or ended a preview.
func (b *base) previewed(ctx context.Context, e preview.Event) {
	r := audit.Record{Principal: string(e.Preview.Owner), Session: string(e.Preview.Session), Outcome: audit.Success, Target: "port " + strconv.Itoa(int(e.Preview.Port))}
	if e.Preview.ID != "" {
		r.Target += " " + e.Preview.ID
	}
	switch e.Action {
	case preview.Made:
		r.Action = audit.PreviewCreate
	case preview.Opened:
		r.Action = audit.PreviewOpen
		if from := web.ClientAddr(ctx); from.IsValid() {
			r.Target += " from " + from.String()
		}
	case preview.Revoked:
		r.Action = audit.PreviewRevoke
	}
	if e.Err != nil {
		r.Outcome, r.ErrorType = audit.Error, string(fault.KindOf(e.Err))
	}
	b.note(ctx, r)
}

// announced tells commands where a server's previews are.
type announced struct {
	Process int    `json:"process"`
	URL     string `json:"url"`  // of each preview, with * in place of its id
	Base    string `json:"base"` // of the server itself
}

func (v *previews) announcement() string { return filepath.Join(v.dir, "server.json") }

// announce tells commands where this server and its previews are, until unannounce.
func (v *previews) announce(url func(id string) string, base string) {
	text, err := json.Marshal(announced{os.Getpid(), url("*"), base})
	if err == nil {
		err = os.MkdirAll(v.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(v.announcement(), text, 0o600)
	}
	if err != nil {
		v.log.Warn("commands will not know where previews are", "cause", err)
	}
}

func (v *previews) unannounce() {
	if a, err := v.server(); err == nil && a.Process == os.Getpid() {
		_ = os.Remove(v.announcement()) // it will be written again
	}
}

// server gives the last server that announced itself. It is an error if none did, or if it
// has ended.
func (v *previews) server() (a announced, err error) {
	text, err := os.ReadFile(v.announcement())
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && !processExists(a.Process) {
		err = os.ErrProcessDone // it was killed, and took nothing back
	}
	return a, err
}

// processExists reports whether there is a process of that number.
func processExists(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission) || runtime.GOOS == "windows" // where it would not have been found
}

// ServerURL gives the address of the server that serves this state folder, without a path.
// It is an error if none does.
func (env *Env) ServerURL() (string, error) {
	s, err := env.newPreviews().server()
	if err == nil && s.Base == "" {
		err = os.ErrNotExist // an earlier paddock
	}
	return s.Base, err
}

// Previews gives the previews of a session.
func (a *App) Previews(i session.Info) ([]preview.Preview, error) {
	return a.previews.store.List(i.Owner, i.ID)
}

// RevokePreviews ends the previews of a session for which chosen is true.
func (a *App) RevokePreviews(ctx context.Context, i session.Info, chosen func(preview.Preview) bool) ([]preview.Preview, error) {
	revoked, err := a.previews.store.Revoke(i.Owner, i.ID, chosen)
	for _, one := range revoked {
		a.previewed(ctx, preview.Event{Action: preview.Revoked, Preview: one})
	}
	return revoked, err
}

// MakePreview makes a preview of what a session serves at a port. The link is what follows
// the preview's address in the URL that opens it.
func (a *App) MakePreview(ctx context.Context, i session.Info, port uint16, path string, ttl time.Duration) (made preview.Preview, link string, err error) {
	made, link, err = preview.Make(a.Sessions, a.previews.store, i.Owner, i.ID, port, path, ttl)
	e := preview.Event{Action: preview.Made, Preview: made, Err: err}
	if err != nil {
		e.Preview = preview.Preview{Owner: i.Owner, Session: i.ID, Port: port}
	}
	a.previewed(ctx, e)
	return made, link, err
}

// PreviewServer gives the process that serves this state folder's previews, and the address
// of a preview there. It is an error if none does.
func (a *App) PreviewServer(id string) (process int, url string, err error) {
	s, err := a.previews.server()
	return s.Process, strings.Replace(s.URL, "*", id, 1), err
}

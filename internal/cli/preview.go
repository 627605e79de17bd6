package cli

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

// previews are those of a state folder, which a server opens and commands make.
type previews struct {
	store   *preview.Store
	dir     string
	log     *slog.Logger
	handler *preview.Handler // nil: this process serves none
}

// previewKeyBytes is how long the key is that signs them.
const previewKeyBytes = 32

func (p *program) newPreviews() *previews {
	dir := filepath.Join(p.places.state, "previews")
	made := caSeeds{dir: p.places.state, vault: p.vault()}
	return &previews{dir: dir, log: p.log, store: preview.Open(dir, func() ([]byte, error) {
		secret, err := made.secret()
		if err != nil {
			return nil, err
		}
		return hkdf.Key(sha256.New, secret, nil, "paddock previews", previewKeyBytes)
	})}
}

// join has the previews of a session end with it.
func (v *previews) join(sc *session.Config) {
	others := sc.OnRemoved
	sc.OnRemoved = func(owner session.Owner, id session.ID) {
		if others != nil {
			others(owner, id)
		}
		if _, err := v.store.Revoke(owner, id, nil); err != nil {
			// They open nothing: the session that they are of is not there.
			v.log.Warn("the previews of a session that has ended are left", "session", id, "cause", fault.CauseOf(err))
		}
	}
}

// addPreviews puts in what serves previews, and makes them.
func (p *program) addPreviews(wc *web.Config, o *parts, refuse func(http.ResponseWriter, *http.Request, error), url func(id string) string) (err error) {
	o.previews.handler, err = preview.New(preview.Config{
		Sessions: o.sessions, Store: o.previews.store, URL: url, Alive: p.alive(), Beyond: beyondScope(refuse),
		Told: o.previewed, AnswerTimeout: wc.RequestTimeout, Log: p.log,
	})
	if err != nil {
		return fmt.Errorf("making the previews: %w", err)
	}
	wc.Preview, wc.Previews = o.previews.handler.ServePreview, telemetry.Joined(o.previews.handler)
	return nil
}

// forModels gives what makes previews for tools; nil where nobody serves them.
func (v *previews) forModels() func(context.Context, session.Owner, session.ID, uint16, string) (string, time.Time, error) {
	if v.handler == nil {
		return nil
	}
	return func(ctx context.Context, _ session.Owner, id session.ID, port uint16, path string) (string, time.Time, error) {
		made, err := v.handler.New(ctx, id, port, path, 0)
		return made.URL, made.Expires, err
	}
}

// previewed records who made, opened or ended a preview.
func (o *parts) previewed(ctx context.Context, e preview.Event) {
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
	o.note(ctx, r)
}

// announced is what a server tells commands of where its previews are.
type announced struct {
	Process int    `json:"process"`
	URL     string `json:"url"` // of every one: its id stands where the * is
}

func (v *previews) announcement() string { return filepath.Join(v.dir, "server.json") }

// announce says where a server's previews are.
func (v *previews) announce(url func(id string) string) {
	text, err := json.Marshal(announced{os.Getpid(), url("*")})
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

// unannounce takes that back.
func (v *previews) unannounce() {
	if a, err := v.server(); err == nil && a.Process == os.Getpid() {
		_ = os.Remove(v.announcement()) // it will be written again
	}
}

// server is the last server that announced itself; an error: none did, or it has ended.
func (v *previews) server() (a announced, err error) {
	text, err := os.ReadFile(v.announcement())
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && !lives(a.Process) {
		err = os.ErrProcessDone // it was killed, and took nothing back
	}
	return a, err
}

// lives tells whether there is a process of that number.
func lives(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission) || runtime.GOOS == "windows" // where it would not have been found
}

func (p *program) previewCommand() *cobra.Command {
	var ask previewAsk
	c := &cobra.Command{
		Use:   "preview ID [PORT]",
		Short: "Make a URL that opens what a session serves",
		Long: `Prints a URL that opens in a browser what a program of a Linux session serves over
HTTP at that port of its own: while paddock serve runs with the same state folder,
at an address that is the preview's alone. Whoever has the URL can open it, until
it expires, is revoked, or the session ends. Without a port: lists the previews of
the session, which do not have their URLs.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Example: `  paddock session preview ID 8000 --ttl 8h
  paddock session preview ID --revoke`,
		Args: count(1, 2, "the id of a session, and a port of it"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil || n == 0 {
					return usage("%q is not a port", args[1]).WithHint("a port lies between 1 and 65535")
				}
				ask.port = uint16(n)
			}
			return p.preview(c, session.ID(args[0]), ask)
		},
	}
	c.Flags().DurationVar(&ask.ttl, "ttl", preview.DefaultTTL, "how long it can be used: a `DURATION` such as 30m, 24h at most")
	c.Flags().StringVar(&ask.path, "path", "/", "the `PATH` at which the browser begins")
	c.Flags().BoolVar(&ask.revoke, "revoke", false, "end the previews of the port, or of all ports")
	jsonFlag(c, &ask.asJSON)
	principalFlag(c, &ask.principal)
	return c
}

// previewAsk is what the command is asked for.
type previewAsk struct {
	principal, path string
	port            uint16 // 0: none was named
	ttl             time.Duration
	revoke, asJSON  bool
}

func (p *program) preview(c *cobra.Command, id session.ID, ask previewAsk) error {
	if err := p.load(c); err != nil {
		return err
	}
	parts, err := p.open(nil)
	if err != nil {
		return err
	}
	defer parts.close(p.log)
	owners, err := p.owners(ask.principal)
	if err != nil {
		return err
	}
	return ofOne(owners, func(o session.Owner) error {
		i, err := parts.sessions.Info(o, id)
		switch {
		case err != nil:
			return err
		case ask.revoke:
			return p.revokePreviews(c.Context(), parts, i, ask)
		case ask.port == 0:
			return p.listPreviews(parts, i, ask)
		}
		return p.makePreview(c.Context(), parts, i, ask)
	})
}

func (p *program) makePreview(ctx context.Context, o *parts, i session.Info, ask previewAsk) error {
	made, link, err := preview.Make(o.sessions, o.previews.store, i.Owner, i.ID, ask.port, ask.path, ask.ttl)
	if err != nil {
		o.previewed(ctx, preview.Event{Action: preview.Made, Preview: preview.Preview{Owner: i.Owner, Session: i.ID, Port: ask.port}, Err: err})
		return err
	}
	o.previewed(ctx, preview.Event{Action: preview.Made, Preview: made})
	shown := preview.Show(made)
	url, err := p.previewURL(o, i, made.ID)
	if err != nil {
		return err
	}
	shown.URL = url + link
	if ask.asJSON {
		return p.printJSON(shown)
	}
	_, err = fmt.Fprintln(p.stdout, shown.URL)
	return err
}

// previewURL is the address of a preview: that of the server which runs, or the one that
// the configuration's would have. A person is told when nobody would answer there.
func (p *program) previewURL(o *parts, i session.Info, id string) (string, error) {
	a, err := o.previews.server()
	if err != nil {
		p.say("warning", "no paddock serve runs with this state folder: the URL opens when one does, as the configuration says")
		wc, _, err := p.webConfig(true)
		if err != nil {
			return "", err
		}
		wc.Dev, wc.Verifier = false, auth.OpenTokens(p.places.state) // nobody comes in
		server, err := web.New(wc)
		if err != nil {
			return "", err
		}
		return server.PreviewURL(id), nil
	}
	if i.Process != 0 && i.Process != a.Process && i.Process != os.Getpid() {
		p.say("warning", fmt.Sprintf("another process (pid %d) has the session open: until it sleeps or that ends, paddock serve cannot reach it", i.Process))
	}
	return withLabel(a.URL, id), nil
}

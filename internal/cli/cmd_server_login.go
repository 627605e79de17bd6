package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/audit"
	"paddock/internal/bindings/oauth"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

// callback is the path at which a login ends on this machine.
const callback = "/callback"

func (cmd serverCommand) loginCommand() *cobra.Command {
	var forget, asJSON bool
	c := &cobra.Command{
		Use: "login NAME", Short: "Log in to a server, with a browser here or elsewhere",
		Long: `Logs in to a server that wants a token of an issuer (OAuth 2.1, authorization code
with PKCE). It prints an address for a browser. At the end the browser is sent to a
port of this machine, where this command waits; where the browser is elsewhere that
page does not open, and its address, copied from the browser, is to be pasted here.

The tokens are kept encrypted in the state folder, and refreshed there. A paddock
that runs already finds them.

Exit codes: 0 done, or it was logged in; 1 failed or refused, 2 wrong usage.`,
		Args: count(1, 1, "the name of a server"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.loginServer(c, args[0], forget, asJSON) },
	}
	c.Flags().BoolVar(&forget, "forget", false, "remove the tokens that are kept")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd serverCommand) loginServer(c *cobra.Command, name string, forget, asJSON bool) error {
	if err := cmd.loadServers(c); err != nil {
		return err
	}
	k, done, err := cmd.FindServer(name)
	if err != nil {
		return err
	}
	defer done()
	var state string
	switch {
	case k.Err != nil:
		return k.Err
	case k.Login == nil && k.Written.URL == "":
		return fault.New(fault.Unsupported, "the server %q needs no login: it is a command", name).WithHint("what it wants to know goes into its variables: paddock server add --env")
	case k.Login == nil:
		return fault.New(fault.Unsupported, "the server %q needs no login: it has an Authorization header", name).WithHint("leave the header out to log in")
	case forget:
		state = "forgotten"
		err = k.Login.Forget(c.Context())
	default:
		state, err = cmd.logIn(c.Context(), k)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return cmd.printJSON(map[string]any{"server": name, "state": state})
	}
	_, err = fmt.Fprintf(cmd.stdout, "%s: %s\n", name, state)
	return err
}

// logIn has somebody log in, unless the server is content already.
func (cmd serverCommand) logIn(ctx context.Context, k *app.Server) (state string, err error) {
	conn, err := cmd.Dial(ctx, k)
	if err == nil {
		_, err = conn.Tools(ctx)
		err = errors.Join(err, conn.Close())
	}
	var needs *upstream.NeedsAuthorization
	switch {
	case err == nil:
		return "it lets paddock in already", nil
	case !errors.As(err, &needs):
		return "", err
	}
	if err := cmd.recordAction(ctx, audit.ServerLogin, k.Name); err != nil {
		return "", err
	}
	w, err := cmd.waitForBrowser(k.Ready.OAuth.Redirect)
	if err != nil {
		return "", err
	}
	defer w.close()
	client, err := oauth.New(cmd.OAuthConfig(k.Name, k.Ready, k.Issuers, w.redirect))
	if err != nil {
		return "", err
	}
	defer client.Close()
	scope := needs.Scope
	if scope == "" {
		scope = strings.Join(k.Ready.OAuth.Scopes, " ")
	}
	login, err := client.Start(ctx, oauth.Challenge{ResourceMetadata: needs.ResourceMetadata, Scope: scope, Code: needs.Code})
	if err != nil {
		return "", err
	}
	w.expect(login.URL)
	fmt.Fprintf(cmd.stderr, "paddock: open this address in a browser, and log in there until %s:\n\n%s\n\n", login.Until.Local().Format("15:04"), login.URL)
	fmt.Fprintf(cmd.stderr, "paddock: if the browser ends at a page that does not open, paste the address of that page here:\n")
	redirected, err := w.wait(ctx, cmd.stdin, login.Until, func(pasted string) {
		if strings.TrimSpace(pasted) != "" {
			cmd.say("warning", "that is not the address where this login ends: it has code= and state= in it")
		}
	})
	if err != nil {
		return "", err
	}
	if err := client.Finish(ctx, redirected); err != nil {
		return "", err
	}
	return "logged in", nil
}

// browser is where a login ends: at a port of this machine, or in what somebody pastes.
type browser struct {
	redirect string
	state    atomic.Pointer[string] // what the login's own end names; nil: there is none yet
	server   *http.Server
	came     chan string
	served   chan struct{} // closed when the server has ended; nil: there is none
}

// waitForBrowser listens where the browser will be sent to. The address of the
// configuration may be taken: then only what is pasted counts.
func (cmd serverCommand) waitForBrowser(configured string) (*browser, error) {
	w := &browser{redirect: configured, came: make(chan string, 1)}
	at, path := "127.0.0.1:0", callback
	if u, ok := app.LocalAddress(configured); configured != "" && ok {
		host, port := u.Hostname(), u.Port()
		if host == "localhost" {
			host = "127.0.0.1"
		}
		if port == "" {
			port = "80"
		}
		at, path = net.JoinHostPort(host, port), u.Path
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		if configured == "" {
			return nil, fault.New(fault.Unavailable, "no port of this machine can be listened at for the end of the login").WithCause(err)
		}
		cmd.say("warning", "cannot wait at "+configured+": "+err.Error())
		return w, nil
	}
	if configured == "" {
		w.redirect = "http://" + l.Addr().String() + callback
	}
	w.server = &http.Server{Handler: w.handler(path), ReadHeaderTimeout: 10 * time.Second}
	w.served = make(chan struct{})
	go func() {
		defer close(w.served)
		_ = w.server.Serve(l) // it ends with close
	}()
	return w, nil
}

// expect says which login is waited for: the one that is begun at an address.
func (w *browser) expect(address string) {
	u, err := url.Parse(address)
	if err == nil {
		state := u.Query().Get("state")
		w.state.Store(&state)
	}
}

// ends reports whether an address is the end of the login: it has the state that
// only this login knows, so that no other page can end it.
func (w *browser) ends(q url.Values) bool {
	state := w.state.Load()
	return state != nil && q.Get("state") == *state && (q.Get("code") != "" || q.Get("error") != "")
}

// handler takes the request that ends the login.
func (w *browser) handler(path string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != path && path != "" || !w.ends(r.URL.Query()) {
			http.NotFound(rw, r)
			return
		}
		select {
		case w.came <- r.URL.String():
		default:
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Header().Set("Cache-Control", "no-store")
		rw.Header().Set("Referrer-Policy", "no-referrer")
		fmt.Fprintln(rw, "paddock has it from here: this page can be closed.")
	})
}

// maxPasted bounds what somebody pastes, in bytes.
const maxPasted = 64 << 10

// wait gives the address that the browser was sent to.
// Lines that are no such address are told to notes.
func (w *browser) wait(ctx context.Context, stdin io.Reader, until time.Time, notes func(string)) (string, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	pasted := make(chan string, 1)
	go func() { // a read of stdin cannot be ended: this one ends with the process
		lines := bufio.NewScanner(stdin)
		lines.Buffer(nil, maxPasted)
		for lines.Scan() {
			if u, err := url.Parse(strings.TrimSpace(lines.Text())); err == nil && w.ends(u.Query()) {
				pasted <- u.String()
				return
			}
			notes(lines.Text())
		}
	}()
	select {
	case address := <-w.came:
		return address, nil
	case address := <-pasted:
		return address, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", fault.New(fault.Unavailable, "there was no login in time").WithHint("start it again")
		}
		return "", ctx.Err()
	}
}

// close ends the listening, when the page that was asked for is written.
func (w *browser) close() {
	if w.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		_ = w.server.Close()
	}
	<-w.served
}

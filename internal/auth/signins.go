package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/table"
)

const (
	// TicketTTL is how long a one-time link can be used, SignInTTL how long a browser
	// that came in stays, unless its token ends before.
	TicketTTL, SignInTTL = 10 * time.Minute, 12 * time.Hour

	signInsFolder = "sign-ins"
	// maxTickets and maxSignIns bound what is kept; maxOfOne is how many browsers of one
	// token, or of the operator, are signed in at a time: the next one ends the oldest.
	maxTickets, maxSignIns, maxOfOne = 100, 2000, 20
)

// SignIns let browsers in: with a [Pass], which they get for a token, or for a ticket that
// the operator made on the command line and that works once.
//
// Each is a document of a table, of a state folder or of a cluster: what is removed there
// lets no one in from the next request on. Its name has the digest of the ticket or the
// pass, which are kept nowhere. A token is sealed with a key that the pass alone gives.
// It is safe for concurrent use.
type SignIns struct{ table table.Table }

// Pass is what a browser shows, in two halves: neither lets in without the other. A browser
// sends a cookie to each port of its host, and so to servers of others; the key it keeps for
// the pages of one origin, and sends where they say.
type Pass struct{ Cookie, Key string }

// SignIn is a browser that was let in.
type SignIn struct {
	// Origin is where its pass counts: scheme://host:port.
	Origin string
	// Token is what it came in with; empty: a ticket of the operator.
	Token string
	// Expires is when it ends at the latest.
	Expires time.Time
}

// OpenSignIns gives the sign-ins of a state folder. Nothing is read before the first use.
func OpenSignIns(state string) *SignIns {
	dir := filepath.Join(state, signInsFolder)
	return SignInsIn(table.NewFolder(table.FolderConfig{
		Dir: dir, Read: readPrivate, Document: isSignIn,
		New: func(path string, data []byte) error {
			if err := prepare(state); err != nil {
				return err
			}
			if err := prepare(dir); err != nil {
				return err
			}
			return atomicfile.WriteNew(path, data, atomicfile.Options{Prefix: "new-"})
		},
		// One that was ended does not come back after a crash.
		Remove: func(path string) error { return removeDurably(path, dir) },
		Failed: unusableSignIns,
	}))
}

// SignInsIn gives those of a table.
func SignInsIn(t table.Table) *SignIns { return &SignIns{t} }

// unusableSignIns is what errors of the disk become.
func unusableSignIns(err error) error {
	return fault.New(fault.Unavailable, "the sign-ins in the state folder cannot be read or changed").
		WithHint("the server's log says why").WithCause(err)
}

// errTicket and errPass say the same of all that let no one in.
var (
	errTicket = fault.New(fault.Denied, "the link is not valid: it was used, has expired, or was never made").
			WithHint("paddock open makes a new one; each works once")
	errPass = fault.New(fault.Denied, "this browser is not signed in, or not any more").
		WithHint("sign in again: paddock open makes a link").WithCause(&refusal{code: codeInvalidToken})
)

// The text of a ticket or a cookie is EXPIRES.WHO.SECRET: Unix seconds, 16 hexadecimal digits
// of whose it is, and 130 random bits. A key is 130 more. The document of a ticket or a pass
// is KIND-EXPIRES-WHO-DIGEST.
const (
	ticketKind, passKind = "ticket", "pass"
	secretChars          = 26
)

func newSecret(who string, expires time.Time) string {
	sum := sha256.Sum256([]byte(who))
	return strconv.FormatInt(expires.Unix(), 10) + "." + hex.EncodeToString(sum[:8]) + "." + rand.Text()
}

// document gives the name of a text's document, and when it expires; not ok: no such text
// was ever made.
func document(kind, text, key string) (name string, expires time.Time, ok bool) {
	parts := strings.Split(text, ".")
	if len(text) > 100 || len(key) > 100 || len(parts) != 3 || len(parts[1]) != 16 || len(parts[2]) != secretChars {
		return "", time.Time{}, false
	}
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	if _, bad := hex.DecodeString(parts[1]); err != nil || bad != nil {
		return "", time.Time{}, false
	}
	sum := sha256.Sum256([]byte(text + " " + key))
	name = kind + "-" + parts[0] + "-" + parts[1] + "-" + hex.EncodeToString(sum[:])
	return name, time.Unix(seconds, 0), isSignIn(name)
}

// isSignIn reports whether a document is one.
func isSignIn(name string) bool {
	kind, _, _, ok := partsOf(name)
	return ok && (kind == ticketKind || kind == passKind)
}

func partsOf(name string) (kind string, expires int64, who string, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 4 {
		return "", 0, "", false
	}
	expires, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[0], expires, parts[2], err == nil
}

// operatorID is whose the sign-ins by a ticket are, among those of principals.
const operatorID = "operator"

// NewTicket makes a ticket of the operator's, which works once.
func (s *SignIns) NewTicket(ctx context.Context) (text string, expires time.Time, err error) {
	expires = time.Now().Add(TicketTTL).Truncate(time.Second)
	if err := s.makeRoom(ctx, ticketKind, "", maxTickets); err != nil {
		return "", time.Time{}, err
	}
	text = newSecret(operatorID, expires)
	name, _, _ := document(ticketKind, text, "")
	_, err = s.table.Put(ctx, name, nil, table.None)
	return text, expires.UTC(), err
}

// BeginByTicket uses a ticket up and signs in the operator; of several who try one succeeds.
func (s *SignIns) BeginByTicket(ctx context.Context, ticket, origin string) (pass Pass, made SignIn, err error) {
	name, expires, ok := document(ticketKind, ticket, "")
	if !ok || !time.Now().Before(expires) {
		return Pass{}, SignIn{}, errTicket
	}
	if err := s.table.Delete(ctx, name, table.Any); errors.Is(err, fs.ErrNotExist) {
		return Pass{}, SignIn{}, errTicket
	} else if err != nil {
		return Pass{}, SignIn{}, err
	}
	return s.begin(ctx, operatorID, SignIn{Origin: origin, Expires: time.Now().Add(SignInTTL)})
}

// Begin signs in the bearer p of a token that has been verified.
func (s *SignIns) Begin(ctx context.Context, p *Principal, token, origin string) (pass Pass, made SignIn, err error) {
	expires := time.Now().Add(SignInTTL)
	if !p.Expires.IsZero() && p.Expires.Before(expires) {
		expires = p.Expires
	}
	return s.begin(ctx, p.ID, SignIn{Origin: origin, Token: token, Expires: expires})
}

// signInJSON is a document.
type signInJSON struct {
	Origin string `json:"origin"`
	Token  []byte `json:"token,omitempty"` // sealed
}

func (s *SignIns) begin(ctx context.Context, who string, made SignIn) (Pass, SignIn, error) {
	made.Expires = made.Expires.Truncate(time.Second).UTC()
	pass := Pass{Cookie: newSecret(who, made.Expires), Key: rand.Text()}
	whose := strings.Split(pass.Cookie, ".")[1]
	if err := s.makeRoom(ctx, passKind, whose, maxOfOne); err != nil {
		return Pass{}, SignIn{}, err
	}
	content := signInJSON{Origin: made.Origin}
	if made.Token != "" {
		sealer, err := sealerOf(pass)
		if err != nil {
			return Pass{}, SignIn{}, err
		}
		content.Token = sealer.Seal(nil, nil, []byte(made.Token), []byte(made.Origin))
	}
	text, err := json.Marshal(content)
	if err != nil {
		return Pass{}, SignIn{}, err
	}
	name, _, _ := document(passKind, pass.Cookie, pass.Key)
	if _, err := s.table.Put(ctx, name, text, table.None); err != nil {
		return Pass{}, SignIn{}, err
	}
	return pass, made, nil
}

// Find gives the sign-in of a pass that came to an origin. Whether its token is still good
// is the caller's to ask.
func (s *SignIns) Find(ctx context.Context, pass Pass, origin string) (SignIn, error) {
	name, expires, ok := document(passKind, pass.Cookie, pass.Key)
	if !ok || !time.Now().Before(expires) {
		return SignIn{}, errPass
	}
	d, err := s.table.Get(ctx, name, table.None)
	if errors.Is(err, fs.ErrNotExist) {
		return SignIn{}, errPass
	}
	if err != nil {
		return SignIn{}, err
	}
	var content signInJSON
	if json.Unmarshal(d.Data, &content) != nil || content.Origin != origin {
		return SignIn{}, errPass
	}
	found := SignIn{Origin: origin, Expires: expires.UTC()}
	if content.Token == nil {
		return found, nil
	}
	sealer, err := sealerOf(pass)
	if err != nil {
		return SignIn{}, err
	}
	token, err := sealer.Open(nil, nil, content.Token, []byte(origin))
	if err != nil {
		return SignIn{}, errPass
	}
	found.Token = string(token)
	return found, nil
}

// End ends the sign-in of a pass. One that is not there has ended.
func (s *SignIns) End(ctx context.Context, pass Pass) error {
	name, _, ok := document(passKind, pass.Cookie, pass.Key)
	if !ok {
		return nil
	}
	return s.remove(ctx, name)
}

// EndAll ends every sign-in and every ticket, and gives how many sign-ins there were.
func (s *SignIns) EndAll(ctx context.Context) (n int, err error) {
	names, err := s.table.Names(ctx, "")
	if err != nil {
		return 0, err
	}
	now := time.Now().Unix()
	for _, name := range names {
		kind, expires, _, ok := partsOf(name)
		if !ok {
			continue
		}
		if err := s.remove(ctx, name); err != nil {
			return n, err
		}
		if kind == passKind && expires > now {
			n++
		}
	}
	return n, nil
}

func (s *SignIns) remove(ctx context.Context, name string) error {
	if err := s.table.Delete(ctx, name, table.Any); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeRoom removes what has expired, and then the oldest of a kind and of who it is of
// (empty: of all) until one more may be made. That there is no room in all is an error.
func (s *SignIns) makeRoom(ctx context.Context, kind, who string, most int) error {
	names, err := s.table.Names(ctx, "")
	if err != nil {
		return err
	}
	now, all := time.Now().Unix(), 0
	var own []string // sorted by their names: the first expires first
	for _, name := range names {
		k, expires, whose, ok := partsOf(name)
		switch {
		case !ok:
			continue
		case expires <= now:
			if err := s.remove(ctx, name); err != nil {
				return err
			}
			continue
		case k == kind && (who == "" || who == whose):
			own = append(own, name)
		}
		all++
	}
	for ; len(own) >= most; own, all = own[1:], all-1 {
		if err := s.remove(ctx, own[0]); err != nil {
			return err
		}
	}
	if all >= maxSignIns {
		full := *fault.New(fault.Exhausted, "too many browsers are signed in").WithHint("paddock open --revoke ends all of their sign-ins")
		full.RetryAfter = time.Minute
		return &full
	}
	return nil
}

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/table"
)

const (
	// maxTokens bounds the tokens that are kept, ended ones included.
	maxTokens = 1000
	// keepEnded is how long a token is listed after it ended.
	keepEnded = 30 * 24 * time.Hour
	// useGrain is how exactly a token's last use is known: writing it down costs
	// a flush of the disk.
	useGrain = time.Hour
	// noteTimeout is how long a request waits for others to be able to say so.
	noteTimeout = 20 * time.Millisecond
)

// Token is what is kept of a bearer token; its text is not.
type Token struct {
	// ID is in the token's text and names it in logs: "token:" and the ID is its
	// bearer as a [Principal].
	ID string `json:"id"`
	// Name is for people; two tokens that are valid never share one.
	Name string `json:"name"`
	// Owner is the ID of the principal who made it.
	Owner string `json:"owner"`
	// Tools and Namespaces bound what its bearer may use; nil: not at all.
	Tools      []string `json:"tools"`
	Namespaces []string `json:"namespaces"`

	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"`   // zero: never
	LastUsed time.Time `json:"last_used,omitzero"` // to the hour; zero: never
	Revoked  time.Time `json:"revoked,omitzero"`   // zero: it is not
}

// Ended is when the token stopped being valid, or will; zero: never.
func (t Token) Ended() time.Time {
	if t.Revoked.IsZero() || !t.Expires.IsZero() && t.Expires.Before(t.Revoked) {
		return t.Expires
	}
	return t.Revoked
}

// Valid tells whether the token lets somebody in now.
func (t Token) Valid(now time.Time) bool { return t.Ended().IsZero() || now.Before(t.Ended()) }

// Tokens are the bearer tokens of one state folder, or of a cluster. Any number of
// processes may use them: what one changes counts in all of them from their next
// verification on. It is safe for concurrent use, and there is nothing to close.
type Tokens struct {
	dir   string // empty: they are in no folder
	table table.Table

	mu    sync.Mutex
	state snapshot
	noted map[string]time.Time // by id: when a last use was last written down, or tried to be
}

var _ Verifier = (*Tokens)(nil)

// OfToken begins the ID of every principal that has a token of ours.
const OfToken = "token:"

// OpenTokens gives the tokens of a state folder. Nothing is read before the
// first use; a folder or file that is not there holds none.
func OpenTokens(dir string) *Tokens {
	s := TokensIn(table.NewFolder(table.FolderConfig{
		Dir: dir, Stamps: true, Read: readPrivate, Write: replace,
		Lock: func(string) string { return lockFile }, Timeout: lockTimeout,
		Before: func(string) error { return prepare(dir) }, Locked: notLocked,
	}))
	s.dir = dir
	return s
}

// TokensIn gives the tokens of a table, in the document [OpenTokens] has as a file.
func TokensIn(t table.Table) *Tokens { return &Tokens{table: t, noted: map[string]time.Time{}} }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Create makes a token from t's name, owner, scopes and expiry, and gives its
// text: nobody can find that out later.
func (s *Tokens) Create(t Token) (text string, made Token, err error) { return s.create(t, newText) }

// CreateForE2B is Create for a token that E2B's clients take for an API key.
func (s *Tokens) CreateForE2B(t Token) (text string, made Token, err error) {
	return s.create(t, newE2BText)
}

func (s *Tokens) create(t Token, newText func(id string) string) (text string, made Token, err error) {
	now := time.Now().UTC().Truncate(time.Second)
	switch {
	case !namePattern.MatchString(t.Name):
		return "", Token{}, fault.New(fault.Invalid, "a token's name has 1 to 63 letters, digits, dots, - and _, and begins with a letter or digit")
	case !t.Expires.IsZero() && !t.Expires.After(now):
		return "", Token{}, fault.New(fault.Invalid, "the token would have expired already")
	}
	err = s.change(lockTimeout, func(all []record) ([]record, error) {
		all = slices.DeleteFunc(all, func(r record) bool { return !r.Valid(now.Add(-keepEnded)) })
		if len(all) >= maxTokens {
			return nil, fault.New(fault.Exhausted, "there are %d tokens already", len(all)).WithHint("one that was revoked goes away after 30 days")
		}
		taken := func(name string) bool {
			return slices.ContainsFunc(all, func(r record) bool { return r.ID == name || r.Name == name && r.Valid(now) })
		}
		if taken(t.Name) {
			return nil, fault.New(fault.Conflict, "there is a token %q already", t.Name).WithHint("revoke it first, or take another name")
		}
		id := newID()
		for taken(id) {
			id = newID()
		}
		text = newText(id)
		_, hash, _ := parseText(text)
		made = Token{
			ID: id, Name: t.Name, Owner: t.Owner, Tools: slices.Clone(t.Tools), Namespaces: slices.Clone(t.Namespaces),
			Created: now, Expires: t.Expires.UTC(),
		}
		return append(all, record{Token: made, Hash: hex.EncodeToString(hash[:])}), nil
	})
	if err != nil {
		return "", Token{}, err
	}
	return text, made, nil
}

// List gives the tokens in the order of their making, with those that ended in
// the last 30 days.
func (s *Tokens) List() ([]Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(context.Background()); err != nil {
		return nil, err
	}
	var all []Token
	for _, r := range s.state.records {
		all = append(all, r.clone().Token)
	}
	return all, nil
}

// Revoke ends a token, which it finds by id or by name. A second time is a
// fault.Conflict.
func (s *Tokens) Revoke(which string) (revoked Token, err error) {
	now := time.Now().UTC().Truncate(time.Second)
	err = s.change(lockTimeout, func(all []record) ([]record, error) {
		at := slices.IndexFunc(all, func(r record) bool { return r.ID == which })
		for i, r := range all { // of one name the last counts: only that can be valid
			if r.Name == which {
				at = i
			}
		}
		if at < 0 {
			return nil, fault.New(fault.NotFound, "there is no token %q", which).WithHint("paddock token ls lists those that there are")
		}
		if t := all[at].Revoked; !t.IsZero() {
			return nil, fault.New(fault.Conflict, "the token %q was revoked already, at %s UTC", which, t.Format(time.DateTime))
		}
		all[at].Revoked = now
		revoked = all[at].clone().Token
		return all, nil
	})
	return revoked, err
}

// Verify implements [Verifier]. A token of an id that nobody has is compared
// too, so that the time it takes tells nothing.
func (s *Tokens) Verify(ctx context.Context, text string) (*Principal, error) {
	if !isText(text) {
		return nil, foreign()
	}
	id, hash, ok := parseText(text)
	if !ok {
		return nil, invalid("the token is not whole").WithHint("copy all of it; it begins with %s", textPrefix)
	}
	if id == localID {
		return nil, foreign()
	}
	now := time.Now()
	r, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	switch same := subtle.ConstantTimeCompare(hash[:], r.hash[:]); {
	case same != 1 || r.ID == "":
		return nil, foreign()
	case !r.Revoked.IsZero():
		return nil, invalid("the token was revoked")
	case !r.Valid(now):
		return nil, invalid("the token has expired")
	}
	s.note(r.ID, now)
	return r.principal(), nil
}

// Alive says whether the bearer of one of these tokens may still act: the
// principal's ID is "token:" and a token's id. That they may not is a
// fault.Denied.
func (s *Tokens) Alive(principal string) error {
	id, _ := strings.CutPrefix(principal, OfToken)
	r, err := s.find(context.Background(), id)
	switch {
	case err != nil:
		return err
	case r.ID == "" || !r.Valid(time.Now()):
		return invalid("the token is not valid any more")
	}
	return nil
}

// find gives the record of an id, one without an id when there is none.
func (s *Tokens) find(ctx context.Context, id string) (record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(ctx); err != nil {
		return record{}, err
	}
	if i, there := s.state.byID[id]; there {
		return s.state.records[i], nil
	}
	return record{hash: sha256.Sum256(nil)}, nil
}

// note writes a token's use down, once in useGrain. That it fails is no reason
// to keep anybody out; it is tried again after as long.
func (s *Tokens) note(id string, now time.Time) {
	s.mu.Lock()
	i, there := s.state.byID[id]
	due := there && now.Sub(s.state.records[i].LastUsed) >= useGrain && now.Sub(s.noted[id]) >= useGrain
	if due {
		s.noted[id] = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	_ = s.change(noteTimeout, func(all []record) ([]record, error) {
		for i := range all {
			if all[i].ID == id {
				all[i].LastUsed = now.UTC().Truncate(useGrain)
			}
		}
		return all, nil
	})
}

package secret

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"paddock/internal/fault"
	"paddock/internal/table"
)

const (
	// maxNames bounds the secrets of a session, and maxBytes their values together: what
	// looks for them in answers takes some 500 bytes for each byte.
	maxNames, maxBytes = 50, 32 << 10
	// maxOlder bounds the placeholders that a session accepts besides its own.
	maxOlder = 20
)

// GrantRequest says which secrets a session is to have.
type GrantRequest struct {
	Session, Owner string
	Names          []string // the owner's secrets; none: the session has none any more
	// From is the session of which this one is a fork; "": of none. Of the names that both
	// have, the fork also accepts the placeholders of that session, which are in the memory
	// that it was made from. It accepts no others of them: a fork that is given nothing can
	// do nothing with what it remembers.
	From string
}

// grantRecord is what a session was given, as its file has it. Placeholders are no secrets: only
// the session's own proxy does anything with them.
type grantRecord struct {
	Version int       `json:"version"`
	Session string    `json:"session"`
	Owner   string    `json:"owner"`
	Secrets []binding `json:"secrets"`
}

// binding is one secret of a session's.
type binding struct {
	Name        string   `json:"name"`
	ID          string   `json:"id"`
	Placeholder string   `json:"placeholder"`
	Older       []string `json:"older,omitempty"` // placeholders of those that it is a fork of
}

func (g *grantRecord) find(id string) *binding {
	for i := range g.Secrets {
		if g.Secrets[i].ID == id {
			return &g.Secrets[i]
		}
	}
	return nil
}

const givenPrefix = "given-"

func grantName(session string) string {
	sum := sha256.Sum256([]byte(session))
	return folder + "/" + givenPrefix + hex.EncodeToString(sum[:16])
}

// Grant makes a session one that has these secrets and no others, and gives the variables
// by which programs find their placeholders. It lasts, over restarts too, until the next
// Give, or [Store.Forget]; a name that the session had keeps its placeholder. A name
// that its owner has no secret of is a fault.NotFound, and nothing changes.
func (s *Store) Grant(g GrantRequest) (variables map[string]string, err error) {
	name := grantName(g.Session)
	err = table.Alone(context.Background(), s.table, name, func(ctx context.Context) error {
		had, revision, err := s.grantOf(ctx, g.Session)
		if err != nil {
			return err
		}
		from := &grantRecord{}
		if g.From != "" && g.From != g.Session {
			if from, _, err = s.grantOf(ctx, g.From); err != nil {
				return err
			}
		}
		now, err := s.bindAll(g, had, from)
		if err != nil {
			return err
		}
		text, err := json.Marshal(now)
		if err != nil {
			return err
		}
		variables = now.variables()
		_, err = s.table.Put(ctx, name, append(text, '\n'), revision)
		return err
	})
	if err != nil {
		return nil, err
	}
	return variables, nil
}

// bindAll makes what a session is to have, of what it had and what the one had that it is a
// fork of.
func (s *Store) bindAll(g GrantRequest, had, from *grantRecord) (*grantRecord, error) {
	c, err := s.content()
	if err != nil {
		return nil, err
	}
	names := slices.Clone(g.Names)
	sort.Strings(names)
	names = slices.Compact(names)
	if len(names) > maxNames {
		return nil, fault.New(fault.Exhausted, "a session can have %d secrets", maxNames).WithHint("give it fewer")
	}
	if had.Session != "" && had.Owner != g.Owner {
		return nil, fault.New(fault.Denied, "the session was given secrets of another owner")
	}
	now, size := &grantRecord{Version: version, Session: g.Session, Owner: g.Owner}, 0
	var mistakes []error
	for _, name := range names {
		k := c.find(g.Owner, name)
		if k == nil {
			mistakes = append(mistakes, errUnknown(name))
			continue
		}
		size += len(k.Sealed)
		b := binding{Name: name, ID: k.ID, Placeholder: newPlaceholder(name)}
		if old := had.find(k.ID); old != nil {
			b = *old
		}
		if before := from.find(k.ID); before != nil && from.Owner == g.Owner {
			for _, p := range append([]string{before.Placeholder}, before.Older...) {
				if !slices.Contains(b.Older, p) && len(b.Older) < maxOlder {
					b.Older = append(b.Older, p)
				}
			}
		}
		now.Secrets = append(now.Secrets, b)
	}
	if size > maxBytes {
		mistakes = append(mistakes, fault.New(fault.Exhausted, "a session's secrets can have %d KiB together", maxBytes>>10).WithHint("give it fewer"))
	}
	return now, errors.Join(mistakes...)
}

// Variables are what programs of a session are given, by name.
func (s *Store) Variables(session string) (map[string]string, error) {
	g, _, err := s.grantOf(context.Background(), session)
	if err != nil {
		return nil, err
	}
	return g.variables(), nil
}

func (g *grantRecord) variables() map[string]string {
	all := map[string]string{}
	for _, b := range g.Secrets {
		all[b.Name] = b.Placeholder
	}
	return all
}

// Forget takes everything from a session: it has ended.
func (s *Store) Forget(session string) error {
	err := s.table.Delete(context.Background(), grantName(session), table.Any)
	var said *fault.Error
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &said):
		return err
	}
	return unusable(err)
}

// grantOf is what a session has, and the revision of that.
func (s *Store) grantOf(ctx context.Context, session string) (*grantRecord, table.Revision, error) {
	g, d, err := s.readGrant(ctx, grantName(session))
	if errors.Is(err, fs.ErrNotExist) {
		return &grantRecord{}, table.None, nil
	}
	if err == nil && g.Session != session {
		err = errors.New("it is another session's")
	}
	if err != nil {
		return nil, table.None, fault.New(fault.Unavailable, "which secrets the session has cannot be read").WithHint("give it its secrets again").WithCause(err)
	}
	return g, d.Revision, nil
}

func (s *Store) readGrant(ctx context.Context, name string) (*grantRecord, table.Document, error) {
	d, err := s.table.Get(ctx, name, table.None)
	if err != nil {
		return nil, d, err
	}
	g := &grantRecord{}
	if err := json.Unmarshal(d.Data, g); err != nil {
		return nil, d, err
	}
	if g.Version != version {
		return nil, d, fmt.Errorf("its version is %d", g.Version)
	}
	for _, b := range g.Secrets {
		for _, p := range append([]string{b.Placeholder}, b.Older...) {
			if len(p) < len(Marker) || cutPlaceholder(p) != p {
				return nil, d, errors.New("it has a placeholder that is none")
			}
		}
	}
	return g, d, nil
}

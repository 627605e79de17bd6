package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/privatefile"
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

func (s *Store) grantPath(session string) string {
	sum := sha256.Sum256([]byte(session))
	return filepath.Join(s.dir, folder, "given-"+hex.EncodeToString(sum[:16]))
}

// Grant makes a session one that has these secrets and no others, and gives the variables
// by which programs find their placeholders. It lasts, over restarts too, until the next
// Give, or [Store.Forget]; a name that the session had keeps its placeholder. A name
// that its owner has no secret of is a fault.NotFound, and nothing changes.
func (s *Store) Grant(g GrantRequest) (map[string]string, error) {
	if err := os.MkdirAll(filepath.Join(s.dir, folder), 0o700); err != nil {
		return nil, unusable(err)
	}
	unlock, err := lock.Acquire(filepath.Join(s.dir, lockFile), lockTimeout)
	if err != nil {
		return nil, unusable(err)
	}
	defer unlock()
	had, err := s.grantOf(g.Session)
	if err != nil {
		return nil, err
	}
	from := &grantRecord{}
	if g.From != "" && g.From != g.Session {
		if from, err = s.grantOf(g.From); err != nil {
			return nil, err
		}
	}
	now, err := s.bindAll(g, had, from)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = blob.WriteFile(blob.OS, s.grantPath(g.Session), append(text, '\n'))
	}
	if err != nil {
		return nil, unusable(err)
	}
	return now.variables(), nil
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
	g, err := s.grantOf(session)
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
	if err := os.Remove(s.grantPath(session)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unusable(err)
	}
	return nil
}

// grantOf is what a session has.
func (s *Store) grantOf(session string) (*grantRecord, error) {
	g, err := readGrant(s.grantPath(session))
	if errors.Is(err, fs.ErrNotExist) {
		return &grantRecord{}, nil
	}
	if err == nil && g.Session != session {
		err = errors.New("it is another session's")
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "which secrets the session has cannot be read").WithHint("give it its secrets again").WithCause(err)
	}
	return g, nil
}

func readGrant(path string) (*grantRecord, error) {
	data, _, err := privatefile.Read(path)
	if err != nil {
		return nil, err
	}
	g := &grantRecord{}
	if err := json.Unmarshal(data, g); err != nil {
		return nil, err
	}
	if g.Version != version {
		return nil, fmt.Errorf("its version is %d", g.Version)
	}
	for _, b := range g.Secrets {
		for _, p := range append([]string{b.Placeholder}, b.Older...) {
			if len(p) < len(Marker) || cutPlaceholder(p) != p {
				return nil, errors.New("it has a placeholder that is none")
			}
		}
	}
	return g, nil
}

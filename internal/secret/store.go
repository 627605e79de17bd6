package secret

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/privatefile"
	"paddock/internal/vault"
)

const (
	// File is the file of the state folder that has the secrets, sealed.
	File     = "secrets.json"
	lockFile = "secrets.lock"
	// folder has, beside it, which sessions were given secrets, and when secrets were used.
	folder = "secrets"
	// lockTimeout is how long the lock is tried for; others hold it for milliseconds.
	lockTimeout = 5 * time.Second
	// maxSecrets bounds what is kept, and maxKept the file in bytes: what is read of it.
	maxSecrets, maxKept = 1000, 1<<20 - 1
	version             = 1
)

// Entry is a secret without its value.
type Entry struct {
	Owner   string    `json:"owner"`
	Name    string    `json:"name"`
	Hosts   []string  `json:"hosts"`
	Places  []string  `json:"in"`
	Created time.Time `json:"created"`
	Rotated time.Time `json:"rotated,omitzero"` // when it last got another value; zero: never
	Used    time.Time `json:"used,omitzero"`    // when it last left, to a minute; zero: never
}

// kept is a secret as the file has it.
type kept struct {
	Entry
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
}

// purpose binds what is sealed to all that says where it may go.
func (k *kept) purpose() string {
	return fmt.Sprintf("secret/%s %q %q %q %q", k.ID, k.Owner, k.Name, k.Hosts, k.Places)
}

type content struct {
	Version int     `json:"version"`
	Secrets []*kept `json:"secrets"`
}

// find gives an owner's secret; nil: there is none.
func (c *content) find(owner, name string) *kept {
	for _, k := range c.Secrets {
		if k.Owner == owner && k.Name == name {
			return k
		}
	}
	return nil
}

func (c *content) byID(id string) *kept {
	for _, k := range c.Secrets {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// Store is the secrets of a state folder. It is for any number of goroutines and
// processes: what one of them changes counts for all from the next request on.
type Store struct {
	dir    string
	sealer vault.Sealer

	mu   sync.Mutex // guards what follows
	seen fs.FileInfo
	last *content
	used map[string]time.Time // by ID, when that was last noted
}

// Open gives the store of a state folder, which is made when something is kept.
func Open(dir string, sealer vault.Sealer) *Store {
	return &Store{dir: dir, sealer: sealer, used: map[string]time.Time{}}
}

// Set keeps an owner's secret. One that is there already gets the value in the place of
// its own, and so do the sessions that have it; its hosts and places stay as they are
// where e has none. A new one needs hosts, and has [DefaultPlaces] where e has none. Of e
// nothing else counts than Owner and Name.
func (s *Store) Set(e Entry, v Value) (Entry, error) {
	var done Entry
	if err := CheckName(e.Name); err != nil {
		return done, err
	}
	err := s.change(func(c *content) error {
		k, now := c.find(e.Owner, e.Name), time.Now().UTC().Truncate(time.Second)
		if k == nil {
			if len(c.Secrets) >= maxSecrets {
				return fault.New(fault.Exhausted, "there are %d secrets already", maxSecrets).WithHint("paddock secret rm removes one")
			}
			k = &kept{Entry: Entry{Owner: e.Owner, Name: e.Name, Created: now, Places: DefaultPlaces}, ID: rand.Text()}
			c.Secrets = append(c.Secrets, k)
		} else {
			k.Rotated = now
		}
		if len(e.Hosts) > 0 {
			k.Hosts = slices.Clone(e.Hosts)
		}
		if len(e.Places) > 0 {
			k.Places = slices.Clone(e.Places)
		}
		if err := k.check(v); err != nil {
			return err
		}
		sealed, err := s.sealer.Seal(k.purpose(), v.text)
		if err != nil {
			return fmt.Errorf("sealing a secret: %w", err)
		}
		k.Sealed = sealed
		done = s.entry(k)
		return nil
	})
	return done, err
}

// check says what cannot be right.
func (k *kept) check(v Value) error {
	if len(k.Hosts) == 0 {
		return fault.New(fault.Invalid, "the secret %s has no hosts to which it may go", k.Name).WithHint("name at least one: --host api.example.com")
	}
	_, errHosts := parseHosts(k.Hosts)
	in, errPlaces := parsePlaces(k.Places)
	return errors.Join(errHosts, errPlaces, v.check(in))
}

// Remove removes an owner's secret, at once: no session can use it any more, also not
// when another of that name is kept later.
func (s *Store) Remove(owner, name string) error {
	return s.change(func(c *content) error {
		k := c.find(owner, name)
		if k == nil {
			return errUnknown(name)
		}
		c.Secrets = slices.DeleteFunc(c.Secrets, func(o *kept) bool { return o == k })
		_ = os.Remove(s.usedPath(k.ID)) // it is a time, of nothing
		return nil
	})
}

func errUnknown(name string) error {
	return fault.New(fault.NotFound, "there is no secret %.80q", name).WithHint("paddock secret ls lists those that there are; paddock secret set keeps one")
}

// List gives all secrets without their values, by owner and name.
func (s *Store) List() ([]Entry, error) {
	c, err := s.content()
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, k := range c.Secrets {
		all = append(all, s.entry(k))
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Owner+"\x00"+a.Name, b.Owner+"\x00"+b.Name) })
	return all, nil
}

// entry is what is shown of a secret.
func (s *Store) entry(k *kept) Entry {
	e := k.Entry
	if info, err := os.Stat(s.usedPath(k.ID)); err == nil {
		e.Used = info.ModTime().UTC().Truncate(time.Second)
	}
	return e
}

func (s *Store) usedPath(id string) string { return filepath.Join(s.dir, folder, "used-"+id) }

// note remembers that secrets were used. That it cannot keeps nobody from using them.
func (s *Store) note(ids []string) {
	now := time.Now()
	for _, id := range ids {
		s.mu.Lock()
		recent := now.Sub(s.used[id]) < time.Minute
		if !recent {
			s.used[id] = now
		}
		s.mu.Unlock()
		if recent {
			continue
		}
		path := s.usedPath(id)
		if os.Chtimes(path, now, now) != nil && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
			_ = os.WriteFile(path, nil, 0o600)
		}
	}
}

func (s *Store) path() string { return filepath.Join(s.dir, File) }

// content gives what is kept now. It is not to be changed.
func (s *Store) content() (*content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		s.seen, s.last = nil, &content{Version: version}
		return s.last, nil
	}
	if err == nil && s.seen != nil && same(s.seen, info) {
		return s.last, nil
	}
	c, info, err := s.read()
	if err != nil {
		return nil, err
	}
	s.seen, s.last = info, c
	return c, nil
}

// same tells whether a file is what it was. Files are only ever replaced.
func same(a, b fs.FileInfo) bool {
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

func (s *Store) read() (*content, fs.FileInfo, error) {
	c := &content{Version: version}
	data, info, err := privatefile.Read(s.path())
	var said *fault.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil, nil
	case errors.As(err, &said):
		return nil, nil, err
	case err != nil:
		return nil, nil, unusable(err)
	}
	err = json.Unmarshal(data, c)
	if err == nil && c.Version != version {
		err = fmt.Errorf("its version is %d", c.Version)
	}
	if err == nil && slices.ContainsFunc(c.Secrets, func(k *kept) bool { return k == nil || k.ID == "" || CheckName(k.Name) != nil }) {
		err = errors.New("it has a secret that is none")
	}
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "the file %s in the state folder is damaged", File).
			WithHint("put a copy back, or remove it and set the secrets again").WithCause(err)
	}
	return c, info, nil
}

// change has f change the content, and writes it.
func (s *Store) change(f func(*content) error) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return unusable(err)
	}
	unlock, err := lock.Acquire(filepath.Join(s.dir, lockFile), lockTimeout)
	if err != nil {
		return unusable(err)
	}
	defer unlock()
	c, _, err := s.read()
	if err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	switch {
	case err != nil:
		return err
	case len(text) > maxKept:
		return fault.New(fault.Exhausted, "the secrets are too large together").WithHint("paddock secret rm removes one")
	}
	if err := blob.WriteFile(blob.OS, s.path(), append(text, '\n')); err != nil {
		return unusable(err)
	}
	return nil
}

// value unseals a secret's value.
func (s *Store) value(k *kept) (Value, error) {
	text, err := s.sealer.Unseal(k.purpose(), k.Sealed)
	return Value{text}, err
}

// young is how long what was given is not swept: its session may just be being made.
const young = 10 * time.Minute

// Sweep forgets what was given, some time ago, to sessions that are no more.
func (s *Store) Sweep(ctx context.Context, lives func(session string) bool) error {
	files, err := filepath.Glob(filepath.Join(s.dir, folder, "given-*"))
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < young {
			continue
		}
		g, errRead := readGrant(path)
		if errRead == nil && !lives(g.Session) {
			err = errors.Join(err, os.Remove(path))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

func unusable(err error) error {
	hint := "let this user write in the state folder"
	if errors.Is(err, syscall.ENOSPC) {
		hint = "make room on the disk that holds the state folder; what was kept before is still there"
	}
	return fault.New(fault.Unavailable, "the secrets in the state folder cannot be read or changed").WithHint("%s", hint).WithCause(err)
}

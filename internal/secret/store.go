package secret

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/table"
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

// Store is the secrets of a state folder, or of a cluster. It is for any number of
// goroutines and processes: what one of them changes counts for all from the next request
// on.
type Store struct {
	dir    string // empty: they are in no folder
	table  table.Table
	sealer vault.Sealer

	mu       sync.Mutex // guards what follows
	revision table.Revision
	last     *content             // what there was at that revision; nil: nothing was read
	used     map[string]time.Time // by ID, when that was last noted
}

// Open gives the store of a state folder, which is made when something is kept.
func Open(dir string, sealer vault.Sealer) *Store {
	s := In(table.NewFolder(table.FolderConfig{
		Dir: dir, Stamps: true, Read: readFile, Write: writeFile,
		Lock: func(string) string { return lockFile }, Timeout: lockTimeout, Locked: unusable,
		Before: func(name string) error {
			if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(path.Dir(name))), 0o700); err != nil {
				return unusable(err)
			}
			return nil
		},
	}), sealer)
	s.dir = dir
	return s
}

// In gives the store of a table: in the document [File] the secrets, in others what sessions
// were given, and when secrets were used.
func In(t table.Table, sealer vault.Sealer) *Store {
	return &Store{table: t, sealer: sealer, used: map[string]time.Time{}}
}

// readFile reads a file of the store's, and writeFile replaces one. Of a secret's use only
// the file's time counts.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	data, info, err := privatefile.Read(path)
	var said *fault.Error
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &said) {
		err = unusable(err)
	}
	return data, info, err
}

func writeFile(path string, data []byte) error {
	if !strings.HasPrefix(filepath.Base(path), usedPrefix) {
		if err := blob.WriteFile(blob.OS, path, data); err != nil {
			return unusable(err)
		}
		return nil
	}
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
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
		_ = s.table.Delete(context.Background(), usedName(k.ID), table.Any) // it is a time, of nothing
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
	if d, err := s.table.Get(context.Background(), usedName(k.ID), table.None); err == nil {
		e.Used = d.Written.UTC().Truncate(time.Second)
	}
	return e
}

const usedPrefix = "used-"

func usedName(id string) string { return folder + "/" + usedPrefix + id }

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
		if !recent {
			_, _ = s.table.Put(context.Background(), usedName(id), nil, table.Any)
		}
	}
}

func (s *Store) path() string { return filepath.Join(s.dir, File) }

// content gives what is kept now. It is not to be changed.
func (s *Store) content() (*content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, revision, err := s.read(context.Background(), s.revision)
	if err != nil {
		return nil, err
	}
	if s.last == nil || revision != s.revision {
		s.last, s.revision = c, revision
	}
	return s.last, nil
}

// read gives what is kept, and its revision. It is empty where that is the revision known.
func (s *Store) read(ctx context.Context, known table.Revision) (*content, table.Revision, error) {
	c := &content{Version: version}
	d, err := s.table.Get(ctx, File, known)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, table.None, nil
	case err != nil:
		return nil, table.None, err
	case d.Revision == known:
		return c, known, nil
	}
	err = json.Unmarshal(d.Data, c)
	if err == nil && c.Version != version {
		err = fmt.Errorf("its version is %d", c.Version)
	}
	if err == nil && slices.ContainsFunc(c.Secrets, func(k *kept) bool { return k == nil || k.ID == "" || CheckName(k.Name) != nil }) {
		err = errors.New("it has a secret that is none")
	}
	if err != nil {
		return nil, table.None, fault.New(fault.Unavailable, "the file %s in the state folder is damaged", File).
			WithHint("put a copy back, or remove it and set the secrets again").WithCause(err)
	}
	return c, d.Revision, nil
}

// change has f change the content, and writes it. f is called again where others changed it
// meanwhile.
func (s *Store) change(f func(*content) error) error {
	return table.Alone(context.Background(), s.table, File, func(ctx context.Context) error {
		c, revision, err := s.read(ctx, table.None)
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
		_, err = s.table.Put(ctx, File, append(text, '\n'), revision)
		return err
	})
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
	names, err := s.table.Names(ctx, folder)
	for _, name := range names {
		if !strings.HasPrefix(name, folder+"/"+givenPrefix) {
			continue
		}
		g, d, errRead := s.readGrant(ctx, name)
		if errRead == nil && time.Since(d.Written) >= young && !lives(g.Session) {
			if gone := s.table.Delete(ctx, name, d.Revision); !errors.Is(gone, table.ErrChanged) && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone) // else it was given again, or another swept it
			}
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

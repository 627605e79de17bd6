package preview

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/table"
)

const (
	// DefaultTTL is how long a preview can be used when nobody says, MaxTTL the most.
	DefaultTTL, MaxTTL = time.Hour, 24 * time.Hour
	// maxOfOwner bounds the previews that an owner has at a time; each is a small file.
	maxOfOwner = 256
	maxPath    = 2000
	suffix     = ".json"
)

// Preview is one port of a session, as a browser may open it. It does not change.
type Preview struct {
	// ID is its name, and the label of its host's: 26 characters that cannot be guessed.
	// Who knows it knows nothing else: programs in the session do.
	ID      string        `json:"id"`
	Owner   session.Owner `json:"owner"`
	Session session.ID    `json:"session"`
	// Made is when the session was: one that is made later under its id is another.
	Made time.Time `json:"made"`
	Port uint16    `json:"port"`
	Path string    `json:"path"` // and query, where the browser begins
	// Expires is in UTC and whole seconds.
	Expires time.Time `json:"expires"`
}

// Store keeps previews in a table that processes share, one document each: what is not
// there was revoked, has expired, or never was. What lets a browser in is signed over all
// that the document says, so that writing there opens nothing without the key. It is
// safe for concurrent use.
type Store struct {
	table table.Table
	get   func() ([]byte, error)

	mu  sync.Mutex // guards what follows
	key []byte     // nil: not asked for yet
}

// Open gives the previews of a folder, which is made when it is needed. key is asked for
// when something is signed, until it has been given once.
func Open(dir string, key func() ([]byte, error)) *Store {
	return In(table.NewFolder(table.FolderConfig{
		Dir: dir, Document: isPreview,
		Write: func(path string, data []byte) error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return atomicfile.WriteFile(path, data, atomicfile.Options{Prefix: "new-"})
		},
		Failed: func(err error) error {
			return fault.New(fault.Unavailable, "the previews cannot be read or written").WithHint("check that %s can be written", dir).WithCause(err)
		},
	}), key)
}

// In gives the previews of a table. All who share it have the same key.
func In(t table.Table, key func() ([]byte, error)) *Store { return &Store{table: t, get: key} }

// isPreview reports whether a document is a preview.
func isPreview(name string) bool {
	id, ok := strings.CutSuffix(name, suffix)
	return ok && label.MatchString(id)
}

var (
	label    = regexp.MustCompile(`^[a-z2-7]{26}$`)
	encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// New makes a preview of a session's port; path "" stands for /, ttl zero for DefaultTTL.
func (s *Store) New(of session.Info, port uint16, path string, ttl time.Duration) (Preview, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if path == "" {
		path = "/"
	}
	switch {
	case port == 0:
		return Preview{}, fault.New(fault.Invalid, "a port lies between 1 and 65535")
	case ttl < time.Second || ttl > MaxTTL:
		return Preview{}, fault.New(fault.Invalid, "a preview lives between 1 second and %v", MaxTTL)
	case !fit(path):
		return Preview{}, fault.New(fault.Invalid, "the path %q is not one of the preview's", path).WithHint("it begins with one slash, such as /admin?page=2")
	}
	mine, err := s.List(of.Owner, "")
	if err != nil {
		return Preview{}, err
	}
	if len(mine) >= maxOfOwner {
		return Preview{}, fault.New(fault.Exhausted, "there are %d previews already, and no more are allowed", len(mine)).WithHint("revoke some, or wait until they expire")
	}
	random := make([]byte, 17)
	rand.Read(random) // never fails
	p := Preview{
		ID: encoding.EncodeToString(random)[:26], Owner: of.Owner, Session: of.ID, Made: of.CreatedAt.UTC(),
		Port: port, Path: path, Expires: time.Now().Add(ttl).Truncate(time.Second).UTC(),
	}
	return p, s.put(p)
}

// fit reports whether a browser that is sent to a path stays with the preview.
func fit(path string) bool {
	return len(path) <= maxPath && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") &&
		!strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) && !reserved(path)
}

func (s *Store) put(p Preview) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing a preview: %w", err)
	}
	_, err = s.table.Put(context.Background(), p.ID+suffix, text, table.Any)
	return err
}

// errGone says the same of every preview that is not, or no longer, there.
var errGone = fault.New(fault.NotFound, "there is no such preview: it was revoked, has expired, or was never made").WithHint("make a new one")

// Get gives the preview of an id.
func (s *Store) Get(id string) (Preview, error) {
	if !label.MatchString(id) {
		return Preview{}, errGone
	}
	d, err := s.table.Get(context.Background(), id+suffix, table.None)
	if errors.Is(err, fs.ErrNotExist) {
		return Preview{}, errGone
	}
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	if json.Unmarshal(d.Data, &p) != nil || p.ID != id || !time.Now().Before(p.Expires) {
		return Preview{}, errGone
	}
	return p, nil
}

// List gives an owner's previews, of one session or where id is "" of all, those that
// expire first first. Those that have expired are forgotten, whosever they are.
func (s *Store) List(owner session.Owner, id session.ID) ([]Preview, error) {
	all := []Preview{}
	names, err := s.table.Names(context.Background(), "")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !isPreview(name) {
			continue
		}
		p, err := s.Get(strings.TrimSuffix(name, suffix))
		switch {
		case errors.Is(err, errGone):
			_ = s.table.Delete(context.Background(), name, table.Any) // or another process did
		case err != nil:
			return nil, err
		case p.Owner == owner && (id == "" || p.Session == id):
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Preview) int {
		if c := a.Expires.Compare(b.Expires); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// Revoke ends the previews of an owner's session that match accepts (nil: all), and
// gives them. Who has one open is cut off within [recheckEvery].
func (s *Store) Revoke(owner session.Owner, id session.ID, match func(Preview) bool) (revoked []Preview, err error) {
	all, err := s.List(owner, id)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if match != nil && !match(p) {
			continue
		}
		if err := s.table.Delete(context.Background(), p.ID+suffix, table.Any); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return revoked, err
		}
		revoked = append(revoked, p)
	}
	return revoked, nil
}

// What a signature lets in: a link, or the browser that has used it.
const (
	byLink   = "paddock preview link 1\n"
	byCookie = "paddock preview cookie 1\n"
)

// sign gives what lets in to a preview.
func (s *Store) sign(purpose string, p Preview) (string, error) {
	key, err := s.secret()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("signing a preview: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// signed reports whether a signature lets in to a preview.
func (s *Store) signed(purpose string, p Preview, signature string) (bool, error) {
	want, err := s.sign(purpose, p)
	return err == nil && hmac.Equal([]byte(want), []byte(signature)), err
}

// leastKey is how many bytes a key has at least.
const leastKey = 32

func (s *Store) secret() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	key, err := s.get()
	if err != nil {
		return nil, fmt.Errorf("looking for the key that signs previews: %w", err)
	}
	if len(key) < leastKey {
		return nil, fault.New(fault.Internal, "the key that signs previews is too short")
	}
	s.key = key
	return key, nil
}

// Link gives the path of the link that opens a preview, below its address.
func (s *Store) Link(p Preview) (string, error) {
	signature, err := s.sign(byLink, p)
	return openPath + signature, err
}

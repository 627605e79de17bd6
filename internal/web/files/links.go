package files

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/session"
	"paddock/internal/table"
	"paddock/internal/workspace"
)

const (
	// DefaultTTL is how long a link can be used when nobody says, MaxTTL the most.
	DefaultTTL, MaxTTL = 10 * time.Minute, 24 * time.Hour

	keyFile, usedFolder = "link-key", "links"
	keyBytes            = 32
	maxToken            = 16 << 10
	// maxUsed bounds how many used links are remembered; each is an empty file.
	maxUsed = 100_000
	// pruneEvery is how often those that have expired are forgotten.
	pruneEvery = time.Minute
)

// Links makes links that move one file once, in one direction, for whoever has
// them. A link carries what it allows, encrypted with a key of the state folder: who
// has it can neither change it nor read whose the file is.
// That it was used is a file there, made with O_EXCL, or a document of a cluster's
// table: so it holds for every process that shares it, and after a restart, until
// the link would have expired anyway. It is safe for concurrent use.
type Links struct {
	key  []byte
	used table.Table // a document for each, EXPIRY-ID

	mu     sync.Mutex // guards what follows
	pruned time.Time
	full   bool // when pruned, there were maxUsed
}

// Link is one link as it is handed out.
type Link struct {
	URL     string    `json:"url"` // /v1/links/…, perhaps with the server's address before
	Method  string    `json:"method"`
	Path    string    `json:"path"` // of the file, below the workspace
	Expires time.Time `json:"expires_at"`
}

// permit is what a link allows.
type permit struct {
	ID      string        `json:"i"`
	Owner   session.Owner `json:"o"`
	Session session.ID    `json:"s"`
	Path    string        `json:"p"`
	Method  string        `json:"m"`
	Expires int64         `json:"e"` // Unix seconds
}

// OpenLinks reads the key of a state folder, and makes it when there is none.
// One that others can read or change is refused: with it they could make links.
func OpenLinks(state string) (*Links, error) {
	dir := filepath.Join(state, usedFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "the folder of used links cannot be made").WithHint("check that %s can be written", state).WithCause(err)
	}
	key, err := readKey(filepath.Join(state, keyFile))
	if said := (*fault.Error)(nil); errors.As(err, &said) {
		return nil, said
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the key that signs links cannot be used").
			WithHint("remove %s: a new one will be made, and links that were given out will not work any more", filepath.Join(state, keyFile)).WithCause(err)
	}
	return LinksIn(table.NewFolder(table.FolderConfig{Dir: dir, New: makeUsed}), key), nil
}

// LinksIn makes links with a key, and notes in a table which were used. All who share the
// table have the same key, of 32 bytes.
func LinksIn(used table.Table, key []byte) *Links { return &Links{key: key, used: used} }

// makeUsed makes the file of a used link. Nothing waits for the disk.
func makeUsed(path string, _ []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// readKey gives the key, making it whole or not at all: of several processes
// one makes it.
func readKey(file string) ([]byte, error) {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	key, _, err := privatefile.Read(file)
	if err == nil && len(key) != keyBytes {
		err = fmt.Errorf("it has %d bytes and not %d", len(key), keyBytes)
	}
	return key, err
}

func makeKey(file string) error {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	return atomicfile.WriteNew(file, key, atomicfile.Options{Durable: true, Prefix: keyFile + "."})
}

// New makes a link to a file that may be there or not yet: method is GET or
// PUT, ttl zero stands for DefaultTTL.
func (l *Links) New(owner session.Owner, id session.ID, name, method string, ttl time.Duration) (Link, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	p, err := workspace.Clean(name)
	switch {
	case err != nil:
		return Link{}, err
	case method != http.MethodGet && method != http.MethodPut:
		return Link{}, fault.New(fault.Invalid, "a link is for GET or PUT")
	case ttl < time.Second || ttl > MaxTTL:
		return Link{}, fault.New(fault.Invalid, "a link lives between 1 second and %v", MaxTTL)
	}
	expires := time.Now().Add(ttl).Truncate(time.Second)
	content, err := json.Marshal(permit{ID: rand.Text(), Owner: owner, Session: id, Path: p, Method: method, Expires: expires.Unix()})
	if err != nil {
		return Link{}, fmt.Errorf("making a link: %w", err)
	}
	sealer, err := l.sealer()
	if err != nil {
		return Link{}, err
	}
	token := base64.RawURLEncoding.EncodeToString(sealer.Seal(nil, nil, content, []byte(purpose)))
	return Link{URL: linksPath + token, Method: method, Path: p, Expires: expires.UTC()}, nil
}

// purpose is what the key of links is used for, and what is sealed in them is for.
const purpose = "paddock link 2"

// sealer encrypts what links allow, with a random nonce in each.
func (l *Links) sealer() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, l.key, nil, purpose, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("making a link: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a link: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// errLink says the same of every link that is not, or no longer, good.
var errLink = fault.New(fault.Denied, "the link is not valid: it was used, has expired, or was never made").WithHint("ask for a new one; each can be used once")

// check gives what a link allows.
func (l *Links) check(token string) (permit, error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if len(token) > maxToken || err != nil {
		return permit{}, errLink
	}
	sealer, err := l.sealer()
	if err != nil {
		return permit{}, err
	}
	var p permit
	content, err := sealer.Open(nil, nil, sealed, []byte(purpose))
	if err != nil || json.Unmarshal(content, &p) != nil || time.Now().Unix() >= p.Expires {
		return permit{}, errLink
	}
	return p, nil
}

// use makes a link a used one; of several who try one succeeds.
func (l *Links) use(p permit) error {
	if err := l.prune(time.Now()); err != nil {
		return err
	}
	_, err := l.used.Put(context.Background(), fmt.Sprintf("%d-%s", p.Expires, p.ID), nil, table.None)
	if errors.Is(err, table.ErrChanged) {
		return errLink
	}
	if err != nil {
		return fault.New(fault.Unavailable, "it cannot be noted that the link is used").WithHint("the server's log says more").WithCause(err)
	}
	return nil
}

// prune forgets used links that have expired, now and then.
func (l *Links) prune(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.pruned) >= pruneEvery {
		names, err := l.used.Names(context.Background(), "")
		if err != nil {
			return fault.New(fault.Unavailable, "the used links cannot be read").WithHint("the server's log says more").WithCause(err)
		}
		left := 0
		for _, name := range names {
			expiry, _, _ := strings.Cut(name, "-")
			if at, err := strconv.ParseInt(expiry, 10, 64); err == nil && at <= now.Unix() {
				_ = l.used.Delete(context.Background(), name, table.Any) // or another process did
				continue
			}
			left++
		}
		l.pruned, l.full = now, left >= maxUsed
	}
	if l.full {
		full := *fault.New(fault.Exhausted, "more links are used than can be remembered").WithHint("try again later")
		full.RetryAfter = pruneEvery
		return &full
	}
	return nil
}

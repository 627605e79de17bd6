// Package vault encrypts what has to lie on disk and must not be read there: tokens,
// headers, variables of other servers. Its key is in the system's keyring or in a file
// of the state folder that only its user reads.
//
// What it seals names its key and is bound to a purpose: what was sealed for one
// cannot be put in the place of another. It protects a copy of the folder without its
// key (a backup, a disk that was given away) and, with a keyring, from whoever reads
// the user's files; not from a program that runs as the user.
package vault

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/privatefile"
)

// KeyFile is the file of the state folder that holds the key, or says which keyring does.
const KeyFile = "vault.key"

const (
	lockFile = "vault.lock"
	// lockTimeout is how long the lock is tried for. Others hold it for milliseconds, or
	// for as long as a person takes to unlock a keyring.
	lockTimeout = keyringTimeout + 5*time.Second
	// version begins what is sealed, and idSize is how many bytes name a key.
	version = 1
	idSize  = 8
)

// Sealer is what a Vault does.
type Sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Unseal(purpose string, sealed []byte) ([]byte, error)
}

// Vault encrypts with one key. It does not change, and is for any number of goroutines.
type Vault struct {
	aead cipher.AEAD
	id   [idSize]byte
	kept string
}

var _ Sealer = (*Vault)(nil)

// Ring is a keyring, such as [System]'s. Get of a key that is not there is an
// [ErrNoKey]. A Ring that does not work here says so with any other error.
type Ring interface {
	// Name is what it is called in messages: "the system's keyring".
	Name() string
	Get(account string) (string, error)
	Set(account, secret string) error
}

// ErrNoKey says that a keyring has no key of that account.
var ErrNoKey = errors.New("vault: the keyring has no such key")

// Open gives the vault of a state folder. The first time it makes a key, which is put
// into the first of the rings that takes it; where none does, or none is given, into
// the file [KeyFile]. From then on the key is where it was put: that it cannot be had
// there is a fault.Unavailable, and no reason to make another. Several processes may
// do this at a time.
func Open(dir string, rings ...Ring) (*Vault, error) {
	v, err := read(dir, rings)
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err)
	}
	unlock, err := lock.Acquire(filepath.Join(dir, lockFile), lockTimeout)
	if err != nil {
		return nil, unusable(err)
	}
	defer unlock()
	if v, err = read(dir, rings); !errors.Is(err, fs.ErrNotExist) { // somebody was quicker
		return v, err
	}
	return create(dir, rings)
}

// Kept says where the key is, for people.
func (v *Vault) Kept() string { return v.kept }

// Kept says where a folder's key is, without asking for it; "": there is none yet.
func Kept(dir string) (string, error) {
	l, err := readLine(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return l.kept(), err
}

// The forms of the key file's only line: the key itself, or the id of one that a
// keyring has.
const (
	inFile = "paddock-key-1"
	inRing = "paddock-keyring-1"
)

// line is what the key file says.
type line struct{ form, value, ring string }

func (l line) kept() string {
	switch l.form {
	case inFile:
		return "the key file " + KeyFile
	case inRing:
		return l.ring
	}
	return ""
}

func readLine(dir string) (line, error) {
	data, _, err := privatefile.Read(filepath.Join(dir, KeyFile))
	var said *fault.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return line{}, err
	case errors.As(err, &said):
		return line{}, said
	case err != nil:
		return line{}, unusable(err)
	}
	form, rest, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	l := line{form: form, value: rest}
	switch form {
	case inFile:
		return l, nil
	case inRing:
		l.value, l.ring, _ = strings.Cut(rest, " ")
		return l, nil
	}
	return line{}, damaged()
}

// read gives the vault of a folder that has a key; fs.ErrNotExist: it has none.
func read(dir string, rings []Ring) (*Vault, error) {
	l, err := readLine(dir)
	if err != nil {
		return nil, err
	}
	if l.form == inFile {
		return withKey(l.value, l.kept())
	}
	var errs []error
	for _, r := range rings {
		if r.Name() != l.ring {
			continue
		}
		text, err := r.Get(l.value)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v, err := withKey(text, l.kept())
		if err == nil && hex.EncodeToString(v.id[:]) != l.value {
			err = damaged()
		}
		return v, err
	}
	return nil, fault.New(fault.Unavailable, "the key of what paddock keeps encrypted is in %s, which does not give it", plainLine(l.ring)).
		WithHint("run paddock where that keyring is unlocked; or remove %s from the state folder and enter again what was kept: headers, logins", KeyFile).
		WithCause(errors.Join(errs...))
}

func withKey(text, kept string) (*Vault, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != chacha20poly1305.KeySize {
		return nil, damaged()
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, damaged()
	}
	v := &Vault{aead: aead, kept: kept}
	sum := sha256.Sum256(append([]byte("paddock vault key id\x00"), key...))
	copy(v.id[:], sum[:])
	return v, nil
}

// create makes a key; the caller has the lock.
func create(dir string, rings []Ring) (*Vault, error) {
	key := make([]byte, chacha20poly1305.KeySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(key)
	v, err := withKey(text, line{form: inFile}.kept())
	if err != nil {
		return nil, err
	}
	says := inFile + " " + text
	for _, r := range rings {
		id := hex.EncodeToString(v.id[:])
		if r.Set(id, text) != nil {
			continue
		}
		if got, err := r.Get(id); err == nil && got == text { // some take all and keep nothing
			v.kept, says = r.Name(), inRing+" "+id+" "+r.Name()
			break
		}
	}
	if err := blob.WriteFile(blob.OS, filepath.Join(dir, KeyFile), []byte(says+"\n")); err != nil {
		return nil, unusable(err)
	}
	return v, nil
}

// additional is what a sealed text is bound to.
func (v *Vault) additional(purpose string) []byte {
	return []byte("paddock vault 1\x00" + purpose)
}

// Seal encrypts for a purpose, such as "server/github".
func (v *Vault) Seal(purpose string, plain []byte) ([]byte, error) {
	sealed := make([]byte, 1+idSize+chacha20poly1305.NonceSizeX, 1+idSize+chacha20poly1305.NonceSizeX+len(plain)+v.aead.Overhead())
	sealed[0] = version
	copy(sealed[1:], v.id[:])
	nonce := sealed[1+idSize:]
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("making a nonce: %w", err)
	}
	return v.aead.Seal(sealed, nonce, plain, v.additional(purpose)), nil
}

// Unseal decrypts what was sealed for the purpose. What was sealed with another key,
// for something else, or was changed, is a fault.Unavailable that says which.
func (v *Vault) Unseal(purpose string, sealed []byte) ([]byte, error) {
	head := 1 + idSize + chacha20poly1305.NonceSizeX
	if len(sealed) < head+v.aead.Overhead() || sealed[0] != version {
		return nil, fault.New(fault.Unavailable, "what was kept encrypted is damaged").WithHint("enter it again")
	}
	if !bytes.Equal(sealed[1:1+idSize], v.id[:]) {
		return nil, fault.New(fault.Unavailable, "what was kept encrypted was so with another key than that in %s", v.kept).
			WithHint("restore the original %s in the state folder, or enter the stored headers and logins again", KeyFile)
	}
	plain, err := v.aead.Open(nil, sealed[1+idSize:head], sealed[head:], v.additional(purpose))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "what was kept encrypted was changed, or is in another's place").WithHint("enter it again")
	}
	return plain, nil
}

func damaged() *fault.Error {
	return fault.New(fault.Unavailable, "the file %s in the state folder holds no key", KeyFile).
		WithHint("put a copy back; or remove it, and enter again what was kept encrypted: headers, logins")
}

func unusable(err error) error {
	hint := "let this user write in the state folder"
	if errors.Is(err, syscall.ENOSPC) {
		hint = "make room on the disk that holds the state folder"
	}
	return fault.New(fault.Unavailable, "the key of what is kept encrypted cannot be read or made").WithHint("%s", hint).WithCause(err)
}

// plainLine is a ring's name as the key file has it, fit for a message.
func plainLine(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "") }

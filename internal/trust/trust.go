// Package trust keeps which configuration files of working folders a person has trusted,
// in a file of the state folder: each by the place where it is found and by the digest of
// what was read from it. A file that changes is not trusted any more, and neither is the
// same text elsewhere.
package trust

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
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/privatefile"
)

const (
	// File is the file's name in the state folder, and Name that of what is trusted.
	File, Name = "trusted.json", "paddock.toml"

	lockFile    = "trusted.lock"
	lockTimeout = 5 * time.Second
	version     = 1
	// maxFiles bounds how many are trusted: half of what privatefile.Read reads.
	maxFiles = 1000
)

// Files are those that the user of a state folder has trusted. It is for any number of
// goroutines and processes.
type Files struct {
	Dir string // the state folder, made when something is trusted
}

// Entry is one file that was trusted.
type Entry struct {
	Path    string    `json:"path"` // absolute, of a folder without links
	SHA256  string    `json:"sha256"`
	Trusted time.Time `json:"trusted_at"`
}

type content struct {
	Version int     `json:"version"`
	Files   []Entry `json:"files"`
}

// Digest is the SHA-256 of a file's text, hexadecimal.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Place is where a file is found: the folder without links, and the file's name in it.
// What a link of that name leads to has no part in it, for anybody's link leads there.
func Place(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the current folder: %w", err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", fault.New(fault.NotFound, "there is no folder %q", filepath.Dir(abs)).WithCause(err)
	}
	return filepath.Join(dir, filepath.Base(abs)), nil
}

// Trusts tells whether a file with this text is trusted where it is found.
func (f Files) Trusts(path string, text []byte) (bool, error) {
	place, err := Place(path)
	if err != nil {
		return false, err
	}
	c, err := f.read()
	if err != nil {
		return false, err
	}
	sum := Digest(text)
	return slices.ContainsFunc(c.Files, func(e Entry) bool { return e.Path == place && e.SHA256 == sum }), nil
}

// Trust adds a file with this text, in place of what was trusted there before.
func (f Files) Trust(path string, text []byte) (Entry, error) {
	place, err := Place(path)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Path: place, SHA256: Digest(text), Trusted: time.Now().UTC().Truncate(time.Second)}
	return e, f.change(func(c *content) error {
		c.Files = slices.DeleteFunc(c.Files, func(old Entry) bool { return old.Path == place })
		if len(c.Files) >= maxFiles {
			return fault.New(fault.Exhausted, "%d files are trusted already", maxFiles).WithHint("paddock trust rm FILE forgets one; paddock trust ls lists them")
		}
		c.Files = append(c.Files, e)
		return nil
	})
}

// Forget takes the file at a path out. It need not be there any more.
func (f Files) Forget(path string) (Entry, error) {
	place, err := Place(path)
	if err != nil {
		if place, err = filepath.Abs(path); err != nil {
			return Entry{}, err
		}
	}
	var gone Entry
	err = f.change(func(c *content) error {
		k := slices.IndexFunc(c.Files, func(e Entry) bool { return e.Path == place })
		if k < 0 {
			return fault.New(fault.NotFound, "%q is not trusted", place).WithHint("paddock trust ls lists the files that are")
		}
		gone = c.Files[k]
		c.Files = slices.Delete(c.Files, k, k+1)
		return nil
	})
	return gone, err
}

// List gives all, by their paths.
func (f Files) List() ([]Entry, error) {
	c, err := f.read()
	slices.SortFunc(c.Files, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return c.Files, err
}

func (f Files) path() string { return filepath.Join(f.Dir, File) }

func (f Files) read() (content, error) {
	c := content{Version: version, Files: []Entry{}}
	data, _, err := privatefile.Read(f.path())
	var said *fault.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case errors.As(err, &said):
		return content{}, err
	case err != nil:
		return content{}, unusable(err)
	}
	if err = json.Unmarshal(data, &c); err == nil && c.Version != version {
		err = fmt.Errorf("its version is %d", c.Version)
	}
	if err != nil {
		return content{}, fault.New(fault.Unavailable, "the file %s in the state folder is damaged", File).
			WithHint("remove it, and trust the files again").WithCause(err)
	}
	return c, nil
}

// change has alter change the content, and writes it whole.
func (f Files) change(alter func(*content) error) error {
	if err := privatefile.CheckFolder(f.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return unusable(err)
	}
	unlock, err := lock.Acquire(filepath.Join(f.Dir, lockFile), lockTimeout)
	if err != nil {
		return unusable(err)
	}
	defer unlock()
	c, err := f.read()
	if err != nil {
		return err
	}
	if err := alter(&c); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if len(text) >= privatefile.MaxBytes { // or it could not be read again
		return fault.New(fault.Exhausted, "the paths of all trusted files take more than %d KiB", privatefile.MaxBytes>>10).WithHint("paddock trust rm FILE forgets one")
	}
	if err := blob.WriteFile(blob.OS, f.path(), append(text, '\n')); err != nil {
		return unusable(err)
	}
	return nil
}

func unusable(err error) error {
	return fault.New(fault.Unavailable, "which files are trusted cannot be read or changed: %v", err).
		WithHint("let this user write in the state folder").WithCause(err)
}

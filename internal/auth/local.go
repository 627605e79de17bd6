package auth

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

const (
	LocalTokenFile = "local-token"
	localID        = "local"
)

// LocalToken gives the token of this machine's user, who is the principal
// [Local]. The first call makes it and keeps it in dir/local-token, which only
// that user can read; created tells that this was now. A file that others can
// read, or that belongs to somebody else, is refused.
func LocalToken(dir string) (token string, created bool, err error) {
	path := filepath.Join(dir, LocalTokenFile)
	if token, err = readLocal(path); !errors.Is(err, fs.ErrNotExist) {
		return token, false, err
	}
	err = locked(dir, lockTimeout, func() error {
		// Another process may have made it just now.
		if token, err = readLocal(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		token, created = newText(localID), true
		return replace(path, []byte(token+"\n"))
	})
	if err != nil {
		return "", false, err
	}
	return token, created, nil
}

func readLocal(path string) (string, error) {
	data, _, err := readPrivate(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if id, _, ok := parseText(token); !ok || id != localID {
		return "", damaged(LocalTokenFile, errors.New("it holds no token")).
			WithHint("remove it: the next start makes a new one")
	}
	return token, nil
}

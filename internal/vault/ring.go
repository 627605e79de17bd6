package vault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/zalando/go-keyring"
)

// keyringTimeout is how long a keyring is waited for: as long as a person may need to
// unlock it.
const keyringTimeout = 60 * time.Second

// service is what keyrings show as the owner of the key.
const service = "paddock"

// System gives the keyring of this machine's user, as far as there can be one: the
// Keychain of macOS, the credential manager of Windows, or elsewhere whoever offers
// the Secret Service on the session's bus. getenv says where that bus is; without one
// there is no ring. It is not asked for anything before it is used.
func System(getenv func(string) string) []Ring {
	switch runtime.GOOS {
	case "darwin":
		return []Ring{system{"the Keychain"}}
	case "windows":
		return []Ring{system{"the credential manager"}}
	}
	if !hasBus(getenv) {
		return nil
	}
	return []Ring{system{"the Secret Service"}}
}

// hasBus tells whether there is a session's bus. Without this the library would start
// one, which nobody asked for.
func hasBus(getenv func(string) string) bool {
	if at := getenv("DBUS_SESSION_BUS_ADDRESS"); at != "" {
		return !strings.HasPrefix(at, "autolaunch:")
	}
	dir := getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "bus"))
	return err == nil
}

type system struct{ name string }

// Name is the keyring's.
func (s system) Name() string { return s.name }

// Get asks for a key.
func (s system) Get(account string) (string, error) {
	return bounded(func() (string, error) {
		secret, err := keyring.Get(service, account)
		if errors.Is(err, keyring.ErrNotFound) {
			return "", ErrNoKey
		}
		return secret, err
	})
}

// Set keeps a key.
func (s system) Set(account, secret string) error {
	_, err := bounded(func() (string, error) { return "", keyring.Set(service, account, secret) })
	return err
}

// bounded does not wait for longer than keyringTimeout. What was begun cannot be ended
// then: the library takes no context. It ends with the keyring's answer, or with the
// process.
func bounded(ask func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := ask()
		done <- answer{text, err}
	}()
	timer := time.NewTimer(keyringTimeout)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.text, a.err
	case <-timer.C:
		return "", fmt.Errorf("the keyring did not answer within %v", keyringTimeout)
	}
}

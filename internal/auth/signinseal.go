package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"paddock/internal/atomicfile"
)

// sealerOf encrypts the token of a sign-in with a key that its pass gives, with a random
// nonce.
func sealerOf(pass Pass) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(pass.Cookie+" "+pass.Key), nil, "paddock sign-in 1", 32)
	if err != nil {
		return nil, fmt.Errorf("signing in: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("signing in: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// removeDurably removes a file so that it does not come back after a crash.
func removeDurably(path, dir string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

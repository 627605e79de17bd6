package app

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/vault"
)

// Of what sessions' authorities are made: a secret of the state folder, sealed.
const authorityFile, authorityPurpose, authorityBytes = "authority", "the network's authorities", 32

// caSeeds makes the seeds of sessions' authorities. An owner's sessions have one, so that
// programs of a machine that was saved or forked trust the proxy of the process that they
// go on in.
type caSeeds struct {
	dir   string // of the state
	vault vault.Sealer
}

// of gives an owner's.
func (s *caSeeds) of(owner session.Owner) ([]byte, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, fmt.Errorf("looking for what authorities are made of: %w", err)
	}
	return hkdf.Key(sha256.New, secret, nil, "paddock owner "+string(owner), authorityBytes)
}

// secret gives the state folder's, which is made when it is first asked for. Of two
// processes that make one, one's stays.
func (s *caSeeds) secret() ([]byte, error) {
	path := filepath.Join(s.dir, authorityFile)
	sealed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.create(path); err == nil {
			sealed, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	secret, err := s.vault.Unseal(authorityPurpose, sealed)
	if err == nil && len(secret) != authorityBytes {
		err = fault.New(fault.Internal, "the file %s in the state folder is damaged", authorityFile).WithHint("remove it: programs in saved machines then trust no connection until they are started again")
	}
	return secret, err
}

func (s *caSeeds) create(path string) error {
	secret := make([]byte, authorityBytes)
	_, _ = rand.Read(secret) // it does not fail
	sealed, err := s.vault.Seal(authorityPurpose, secret)
	if err != nil {
		return err
	}
	err = atomicfile.WriteNew(path, sealed, atomicfile.Options{Durable: true, Prefix: authorityFile + "-"})
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was quicker
	}
	return err
}

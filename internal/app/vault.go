package app

import (
	"os"
	"sync"

	"paddock/internal/vault"
)

// Vault gives the state folder's vault. It is opened when something is first sealed or
// unsealed: most commands need none, and a keyring may ask a person.
func (env *Env) Vault() vault.Sealer { return sealer{env} }

// OpenVault opens the vault. Its error says why that is not possible.
func (env *Env) OpenVault() error {
	_, err := env.vault.open(env)
	return err
}

// Rings are the keyrings that a key may be put into. With vault.keyring = "off" a new key
// goes into none; a key that is in a keyring already is read from there.
func (env *Env) Rings() []vault.Ring {
	if kept, err := vault.Kept(env.StateDir); env.Config.Vault.Keyring == "off" && (err != nil || kept == "") {
		return nil
	}
	return vault.System(os.Getenv)
}

// sealer seals with the vault of an Env. It implements [vault.Sealer].
type sealer struct{ env *Env }

// Seal implements [vault.Sealer].
func (s sealer) Seal(purpose string, plain []byte) ([]byte, error) {
	v, err := s.env.vault.open(s.env)
	if err != nil {
		return nil, err
	}
	return v.Seal(purpose, plain)
}

// Unseal implements [vault.Sealer].
func (s sealer) Unseal(purpose string, sealed []byte) ([]byte, error) {
	v, err := s.env.vault.open(s.env)
	if err != nil {
		return nil, err
	}
	return v.Unseal(purpose, sealed)
}

// vaultOnce keeps a vault once it is open. The zero value is ready to use.
type vaultOnce struct {
	mu sync.Mutex // guards what follows
	v  *vault.Vault
}

// open gives the vault of env. After an error the next call tries again.
func (o *vaultOnce) open(env *Env) (*vault.Vault, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.v != nil {
		return o.v, nil
	}
	v, err := vault.Open(env.StateDir, env.Rings()...)
	if err != nil {
		return nil, err
	}
	o.v = v
	return v, nil
}

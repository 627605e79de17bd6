package auth

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-jose/go-jose/v4"

	"paddock/internal/fault"
)

const (
	// freshFor is how long an issuer's keys count without asking again: the
	// longest time that a key counts which the issuer took back.
	freshFor = 5 * time.Minute
	// staleFor is how long they count while the issuer cannot be asked.
	staleFor = time.Hour
	// askPause is the least time between two questions: a flood of tokens with
	// unknown keys asks no more often.
	askPause = 10 * time.Second
	// mostPause is the longest time between two questions that failed.
	mostPause = time.Minute
	// askTime bounds one question, discovery included.
	askTime = 10 * time.Second

	maxKeys = 50
	minRSA  = 2048 // bits, as RFC 7518 has it
)

// keyring has an issuer's public keys. One request at a time asks the issuer;
// the others go on with the keys that there are, or wait if there are none.
type keyring struct {
	issuer issuer
	log    *slog.Logger
	now    func() time.Time
	asking chan struct{} // holds one value while somebody asks

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	asked   time.Time // when keys came last
	next    time.Time // when to ask again at the earliest
	failing bool      // since keys came last
	pauses  backoff.ExponentialBackOff
}

func newKeyring(url string, allowHTTP bool, log *slog.Logger) *keyring {
	return &keyring{
		issuer: newIssuer(url, allowHTTP), log: log.With("issuer", url), now: time.Now, asking: make(chan struct{}, 1),
		pauses: backoff.ExponentialBackOff{InitialInterval: time.Second, Multiplier: 2, MaxInterval: mostPause},
	}
}

// find gives the keys that may have made a signature: those of the id, or all
// when it is empty. No such key is a refusal, no key at all fault.Unavailable.
func (k *keyring) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	for {
		found, ask, err := k.look(id, algorithm)
		if !ask {
			return found, err
		}
		select {
		case k.asking <- struct{}{}:
		default:
			if len(found) > 0 {
				return found, nil
			}
			select { // somebody asks already: that is what we wait for
			case k.asking <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if _, ask, _ := k.look(id, algorithm); ask {
			k.ask(ctx)
		}
		<-k.asking
	}
}

// look gives what is known now, and whether to ask the issuer first. The keys
// that it gives then may be used by whoever does not want to wait.
func (k *keyring) look(id, algorithm string) (found []jose.JSONWebKey, ask bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	age := now.Sub(k.asked)
	usable := !k.asked.IsZero() && age < staleFor
	if usable {
		found = matching(k.keys, id, algorithm)
	}
	switch due := !now.Before(k.next); {
	case len(found) > 0 && age < freshFor:
		return found, false, nil
	case due:
		return found, true, nil
	case len(found) > 0:
		return found, false, nil
	case usable && !k.failing:
		return nil, false, invalid("the token's key is not one of the issuer's")
	}
	return nil, false, unavailable(k.next.Sub(now))
}

func unavailable(after time.Duration) error {
	e := fault.New(fault.Unavailable, "access tokens cannot be checked now: their issuer does not answer").WithHint("try again in a moment")
	e.RetryAfter = max(after.Round(time.Second), time.Second)
	return e
}

func matching(keys []jose.JSONWebKey, id, algorithm string) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, k := range keys {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) {
			found = append(found, k)
		}
	}
	return found
}

// ask gets the keys again. The question goes on when whoever asked has gone:
// others wait for the answer.
func (k *keyring) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	data, err := k.issuer.keySet(ctx)
	var keys []jose.JSONWebKey
	if err == nil {
		keys, err = parseKeys(data)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if err != nil {
		pause := k.pauses.NextBackOff()
		k.failing = true
		k.next = now.Add(pause)
		k.log.Warn("the issuer's keys cannot be had", "cause", err, "again_in", pause, "keys_from", k.asked)
		return
	}
	k.keys, k.asked, k.next, k.failing = keys, now, now.Add(askPause), false
	k.pauses.Reset()
}

// parseKeys reads a JSON Web Key Set. What is in it and is not a key to verify
// signatures with is left out.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("reading the key set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, one := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(one) == nil && suits(k) && len(keys) < maxKeys {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set holds no key that verifies signatures")
	}
	return keys, nil
}

func suits(k jose.JSONWebKey) bool {
	if r, ok := k.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
		return false
	}
	return k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") &&
		(k.Algorithm == "" || slices.Contains(algorithms, jose.SignatureAlgorithm(k.Algorithm)))
}

package e2b

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The tokens of a sandbox are made of its id and a key, so they lie on no disk.

func (s *Server) token(id, purpose string) string {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(purpose + ":" + id))
	return hex.EncodeToString(h.Sum(nil))
}

// envdToken opens a sandbox's daemon, and trafficToken what listens at its ports.
func (s *Server) envdToken(id string) string    { return s.token(id, "envd") }
func (s *Server) trafficToken(id string) string { return s.token(id, "traffic") }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signature signs the transfer of a file, as E2B's clients do.
func signature(q url.Values, operation, token string) string {
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if expiry := q.Get("signature_expiration"); expiry != "" {
		text += ":" + expiry
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// operationOf is what a request to /files does.
func operationOf(r *http.Request) string {
	if r.Method == http.MethodPost {
		return "write"
	}
	return "read"
}

// expired reports whether a signed request comes too late.
func expired(q url.Values, now time.Time) bool {
	text := q.Get("signature_expiration")
	if text == "" {
		return false
	}
	at, err := strconv.ParseInt(text, 10, 64)
	return err != nil || now.Unix() > at
}

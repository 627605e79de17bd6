package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"
)

// A token's text is pdk_ID_SECRETCHECK: an id of lower-case letters and digits,
// a secret of 256 random bits in 64 hexadecimal digits, and the CRC-32 of all
// that is before it in 8. The prefix and the check are for those who look for
// tokens in places where none should be, and for what was copied by halves.
const (
	textPrefix = "pdk_"
	secretLen  = 64
	checkLen   = 8
	idLen      = 10
)

// A client of E2B's takes a key only of this prefix and hexadecimal digits: those of the id, the
// secret and the check.
const e2bPrefix = "e2b_"

// newE2BText makes a token's text for an id as E2B's clients take it.
func newE2BText(id string) string {
	secret := make([]byte, secretLen/2)
	rand.Read(secret) // never fails
	text := e2bPrefix + hex.EncodeToString([]byte(id)) + hex.EncodeToString(secret)
	return text + check(text)
}

// parseE2BText is parseText for such a text.
func parseE2BText(text string) (id string, hash [sha256.Size]byte, ok bool) {
	digits, ours := strings.CutPrefix(text, e2bPrefix)
	if !ours || len(digits) != 2*idLen+secretLen+checkLen {
		return "", hash, false
	}
	name, err := hex.DecodeString(digits[:2*idLen])
	body := text[:len(text)-checkLen]
	if _, bad := hex.DecodeString(digits); err != nil || bad != nil || !isID(string(name)) || check(body) != text[len(body):] || strings.ToLower(text) != text {
		return "", hash, false
	}
	return string(name), sha256.Sum256([]byte(body)), true
}

// newID gives an id of 50 random bits.
func newID() string { return strings.ToLower(rand.Text()[:idLen]) }

// newText makes a token's text for an id.
func newText(id string) string {
	secret := make([]byte, secretLen/2)
	rand.Read(secret) // never fails: it ends the process instead
	text := textPrefix + id + "_" + hex.EncodeToString(secret)
	return text + check(text)
}

func check(text string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text))) }

// isText tells whether a text is meant to be a token of ours.
func isText(text string) bool {
	return strings.HasPrefix(text, textPrefix) || strings.HasPrefix(text, e2bPrefix)
}

// parseText gives the id in a token's text and the hash that is kept of it;
// not ok: nobody ever made such a token.
func parseText(text string) (id string, hash [sha256.Size]byte, ok bool) {
	if strings.HasPrefix(text, e2bPrefix) {
		return parseE2BText(text)
	}
	rest, ours := strings.CutPrefix(text, textPrefix)
	id, secret, cut := strings.Cut(rest, "_")
	if !ours || !cut || !isID(id) || len(secret) != secretLen+checkLen {
		return "", hash, false
	}
	body := text[:len(text)-checkLen]
	if _, err := hex.DecodeString(secret); err != nil || check(body) != secret[secretLen:] {
		return "", hash, false
	}
	return id, sha256.Sum256([]byte(body)), true
}

func isID(s string) bool {
	return s != "" && len(s) <= idLen && strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '2' <= r && r <= '7')
	}) < 0
}

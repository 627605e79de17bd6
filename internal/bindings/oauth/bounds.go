package oauth

import (
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"paddock/internal/fault"
)

// What a server and its issuer say is theirs to choose, so that its size is bounded here,
// besides answerSize.
const (
	// renewTime bounds all requests together that get another token.
	renewTime = 2 * time.Minute
	// maxChallenge bounds a WWW-Authenticate in bytes: to read one takes time that grows
	// with the square of its size.
	maxChallenge = 8 << 10
	// maxScopes bounds how many scopes are asked for, and maxScopesSize their bytes.
	maxScopes, maxScopesSize = 200, 4 << 10
	// maxAddress bounds the address of a login in bytes: what browsers and terminals take.
	maxAddress = 16 << 10
	// maxToken bounds a token in bytes: servers take headers of 8 to 16 KiB.
	maxToken = 16 << 10
	// maxGrant bounds in bytes what is kept of a login.
	maxGrant = 64 << 10
)

// brief gives a challenge that can be read; none where it is too long.
func brief(challenge []string) []string {
	size := 0
	for _, line := range challenge {
		if size += len(line) + 1; size > maxChallenge {
			return nil
		}
	}
	return challenge
}

// parseChallenge reads the lines of a WWW-Authenticate. One that is too long is none.
func parseChallenge(lines []string) ([]oauthex.Challenge, error) {
	return oauthex.ParseWWWAuthenticate(brief(lines))
}

// union is what is in either, each once, as far as there is room.
func union(a, b []string) (all []string) {
	known, size := map[string]bool{}, 0
	for _, list := range [][]string{a, b} {
		for _, s := range list {
			if len(all) == maxScopes {
				return all
			}
			if size+len(s) >= maxScopesSize || known[s] {
				continue
			}
			known[s], size, all = true, size+len(s)+1, append(all, s)
		}
	}
	return all
}

// plain tells whether a text is ASCII without blanks and control characters.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// check says why what an issuer granted cannot be kept.
func (g *grant) check(server string, size int) error {
	if !plain(g.Access) || !plain(g.Refresh) || len(g.Access) > maxToken || len(g.Refresh) > maxToken || size > maxGrant {
		return fault.New(fault.Denied, "the issuer of the server %q gives out what is not a token: it has more than %d KiB, or characters that no header can hold", server, maxToken>>10)
	}
	return nil
}

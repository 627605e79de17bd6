package config

import (
	"fmt"
	"regexp"
	"slices"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// scopePattern is what RFC 6749 has as a scope.
var scopePattern = regexp.MustCompile(`^[!#-\[\]-~]{1,200}$`)

// scopes is some OAuth scopes, each once.
func scopes() kind[[]string] {
	return texts("OAuth scopes", func(words []string) ([]string, error) {
		if len(words) == 0 {
			return nil, nil
		}
		for i, w := range words {
			if !scopePattern.MatchString(w) {
				return nil, fmt.Errorf("%q is not a scope", w)
			}
			if slices.Contains(words[:i], w) {
				return nil, fmt.Errorf("%q is there twice", w)
			}
		}
		return words, nil
	})
}

// checkIssuer says what is wrong with the issuer that was set.
func (c *Config) checkIssuer() error {
	if c.Auth.Issuer == "" {
		return nil
	}
	err := auth.CheckIssuer(c.Auth.Issuer, c.Auth.AllowHTTPIssuer)
	if err == nil {
		return nil
	}
	return fault.New(fault.Invalid, "%s: auth.issuer: %s", c.Origin("auth.issuer"), fault.Of(err).Message).
		WithHint("%s; auth.allow_http_issuer lets in http on a loopback address", fault.Of(err).Hint)
}

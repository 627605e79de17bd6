package auth

import (
	"errors"
	"net/http"
	"strings"

	"paddock/internal/fault"
)

// The error codes of RFC 6750. A request without any token gets none.
const (
	codeInvalidRequest    = "invalid_request"
	codeInvalidToken      = "invalid_token"
	codeInsufficientScope = "insufficient_scope"
)

// maxToken bounds a token's text in bytes. Access tokens of the large issuers
// stay below 4 KiB.
const maxToken = 16 << 10

// refusal is the cause of a fault.Denied that [Challenge] makes a header of. It
// holds nothing of the token.
type refusal struct {
	code    string // one of RFC 6750; empty: there was no token
	scopes  []string
	foreign bool // the token is of a kind that this verifier knows nothing of
}

func (r *refusal) Error() string {
	if r.code == "" {
		return "no token"
	}
	return r.code
}

// invalid is the refusal of a token that nobody accepts.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.Denied, format, args...).
		WithHint("ask the operator for a new token").
		WithCause(&refusal{code: codeInvalidToken})
}

// foreign is what a verifier says of a token that another may know.
func foreign() *fault.Error {
	return invalid("the token is none of this server's").WithCause(&refusal{code: codeInvalidToken, foreign: true})
}

func isForeign(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.foreign
}

// InsufficientScope is the refusal of a token that is right and does not reach
// far enough. The scopes are what a token for this request needs.
func InsufficientScope(scopes ...string) *fault.Error {
	return fault.New(fault.Denied, "the token does not reach that far: it needs the scope %s", strings.Join(scopes, " ")).
		WithHint("sign in again and grant that scope").
		WithCause(&refusal{code: codeInsufficientScope, scopes: scopes})
}

// BearerToken takes the token out of a request's Authorization header. Its
// error is a fault.Denied for [Challenge].
func BearerToken(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) > 1 {
		return "", fault.New(fault.Denied, "the request has several Authorization headers").
			WithHint("send one: Authorization: Bearer TOKEN").WithCause(&refusal{code: codeInvalidRequest})
	}
	scheme, token, _ := strings.Cut(strings.Join(values, ""), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fault.New(fault.Denied, "the request has no token").
			WithHint("send the header Authorization: Bearer TOKEN").WithCause(&refusal{})
	}
	switch token = strings.TrimLeft(token, " "); {
	case len(token) > maxToken:
		return "", invalid("the token is too long")
	case !isTokenText(token):
		return "", invalid("the token is empty or has letters that no token has").WithHint("send the header Authorization: Bearer TOKEN")
	}
	return token, nil
}

// isTokenText tells whether s is a b64token of RFC 6750.
func isTokenText(s string) bool {
	body := strings.TrimRight(s, "=")
	return body != "" && strings.IndexFunc(body, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._~+/", r))
	}) < 0
}

// Challenge gives the HTTP status that answers err, an error of [BearerToken],
// [InsufficientScope] or a [Verifier], and the WWW-Authenticate header, which
// is empty when the status has none. The URL is where the [Metadata] lies;
// empty: nowhere. The scopes are named to a client that has no valid token, so
// that it asks for them.
//
// 400: several headers; 401: no token, or not a valid one; 403:
// one that does not reach far enough; 503: nobody can tell now, and the fault
// may say when to try again; 500: anything else.
func Challenge(err error, resourceMetadataURL string, scopes ...string) (status int, header string) {
	var r *refusal
	if !errors.As(err, &r) {
		switch fault.KindOf(err) {
		case fault.Denied: // of somebody who is known
			return http.StatusForbidden, ""
		case fault.Unavailable, fault.Exhausted, fault.Cancelled:
			return http.StatusServiceUnavailable, ""
		}
		return http.StatusInternalServerError, ""
	}
	status = http.StatusUnauthorized
	switch r.code {
	case codeInvalidRequest:
		status = http.StatusBadRequest
	case codeInsufficientScope:
		status, scopes = http.StatusForbidden, r.scopes
	}
	if r.scopes != nil {
		scopes = r.scopes
	}
	var params []string
	for _, p := range [][2]string{
		{"error", r.code}, {"error_description", description(err, r)},
		{"scope", strings.Join(scopes, " ")}, {"resource_metadata", resourceMetadataURL},
	} {
		if p[1] != "" {
			params = append(params, p[0]+"="+quoted(p[1]))
		}
	}
	return status, strings.TrimRight("Bearer "+strings.Join(params, ", "), " ")
}

// description is what people read in the header; without a token there is
// nothing to describe.
func description(err error, r *refusal) string {
	if r.code == "" {
		return ""
	}
	return fault.Of(err).Message
}

// quoted writes a quoted-string. What no parameter of RFC 6750 may hold, quotes
// and all that does not print included, becomes an apostrophe.
func quoted(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '\''
		}
		return r
	}, s) + `"`
}

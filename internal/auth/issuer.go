package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
	"paddock/internal/localhost"
)

// maxDocument bounds in bytes what an issuer may answer.
const maxDocument = 256 << 10

// issuer is an authorization server, and how its documents are fetched.
type issuer struct {
	url       string
	allowHTTP bool
	client    *http.Client
}

func newIssuer(url string, allowHTTP bool) issuer {
	return issuer{url: url, allowHTTP: allowHTTP, client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			DisableKeepAlives:      true, // it is asked once in minutes
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
				return errors.New("it leads to another host, or around in circles")
			}
			return nil
		},
	}}
}

// CheckIssuer checks an issuer's identifier: an https URL, or with allowHTTP
// http on a loopback address, without a query or a fragment.
func CheckIssuer(issuer string, allowHTTP bool) error {
	u, err := url.Parse(issuer)
	if err == nil {
		err = checkURL(u, allowHTTP)
	}
	if err == nil && (u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil) {
		err = errors.New("it has a query, a fragment or a user")
	}
	if err != nil {
		return fault.New(fault.Invalid, "%q cannot be the issuer of access tokens: %v", issuer, err).
			WithHint("it is the https URL in the tokens' iss, exactly")
	}
	return nil
}

func checkURL(u *url.URL, allowHTTP bool) error {
	switch {
	case u.Host == "" || u.Hostname() == "":
		return errors.New("it is not an absolute URL")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && allowHTTP && localhost.Is(u.Hostname()):
		return nil
	case u.Scheme == "http" && allowHTTP:
		return errors.New("plain http is for loopback addresses only")
	}
	return errors.New("it is not https")
}

// keySet fetches the issuer's JSON Web Key Set. It looks for its address each
// time: an issuer that moves its keys says so there.
func (i issuer) keySet(ctx context.Context) ([]byte, error) {
	address, err := i.discover(ctx)
	if err != nil {
		return nil, err
	}
	data, err := i.fetch(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("fetching the key set: %w", err)
	}
	return data, nil
}

// discover gives the address of the issuer's keys from its metadata, which lies
// where OpenID Connect has it, where RFC 8414 has it, or between the two.
func (i issuer) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(i.url)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	var mistakes []error
	for _, p := range []string{
		path + "/.well-known/openid-configuration",
		"/.well-known/oauth-authorization-server" + path,
		"/.well-known/openid-configuration" + path,
	} {
		at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: p}
		address, err := i.keysAddress(ctx, at.String())
		if err == nil {
			return address, nil
		}
		mistakes = append(mistakes, err)
	}
	return "", fmt.Errorf("discovering the issuer: %w", errors.Join(mistakes...))
}

// keysAddress reads one metadata document. It counts only if it is the
// issuer's own word.
func (i issuer) keysAddress(ctx context.Context, at string) (string, error) {
	data, err := i.fetch(ctx, at)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return "", fmt.Errorf("reading %s: %w", at, err)
	}
	if document.Issuer != i.url {
		return "", fmt.Errorf("%s is the word of the issuer %q, not of %q", at, document.Issuer, i.url)
	}
	u, err := url.Parse(document.Keys)
	if err == nil {
		err = checkURL(u, i.allowHTTP)
	}
	if err != nil {
		return "", fmt.Errorf("%s has keys at %q: %w", at, document.Keys, err)
	}
	return document.Keys, nil
}

// fetch gets a document, bounded in size and, by ctx, in time.
func (i issuer) fetch(ctx context.Context, at string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := i.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", at, resp.Status)
	}
	data, err := iolimit.ReadAll(resp.Body, maxDocument, errors.New("it is too large"))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", at, err)
	}
	return data, nil
}

package secret

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// outgoing is a request into which values are put.
type outgoing struct {
	engine  *Engine
	state   *state
	r       *http.Request
	scheme  string
	host    string
	port    int
	used    []string // the IDs of secrets
	filled  int      // the bytes of values that were put in
	forHost bool     // the host may know a value that the session has, or had
}

func newOutgoing(e *Engine, s *state, r *http.Request) (*outgoing, error) {
	o := &outgoing{engine: e, state: s, r: r}
	var err error
	if o.scheme, o.host, o.port, err = egress.Origin(r.URL); err != nil {
		return nil, err
	}
	for _, b := range s.all {
		o.forHost = o.forHost || b.hosts.near(o.host, o.port)
	}
	for _, old := range s.older {
		o.forHost = o.forHost || old.hosts.near(o.host, o.port)
	}
	return o, nil
}

// may says why a secret may not go with the request, wherever it stands.
func (o *outgoing) may(b *sessionSecret) error {
	switch {
	case b.gone:
		return b.errRemoved()
	case b.taken:
		return b.errNotAllowed()
	case !b.hosts.may(o.scheme, egress.Request{Method: o.r.Method, Host: o.host, Port: o.port, Path: o.r.URL.EscapedPath()}):
		return b.errHost(o.scheme, o.host)
	}
	return b.err
}

// place says why a secret may not stand where it does; nil: it may.
type place func(b *sessionSecret) error

// encode writes a value as it has to be where it stands.
type encode func(b *sessionSecret) (string, error)

// fill puts values in for the placeholders of a text.
func (o *outgoing) fill(text, where string, in place, as encode) (string, error) {
	if !strings.Contains(text, Marker) {
		if marks.In(text) {
			return "", errMalformedPlaceholder(where)
		}
		return text, nil
	}
	var out, rest strings.Builder
	for {
		before, _, found := strings.Cut(text, Marker)
		out.WriteString(before)
		rest.WriteString(before + "\x00")
		if !found {
			break
		}
		text = text[len(before):]
		placeholder := cutPlaceholder(text)
		value, err := o.value(placeholder, in, as)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = text[len(placeholder):]
	}
	if marks.In(rest.String()) {
		return "", errMalformedPlaceholder(where)
	}
	return out.String(), nil
}

// value is what a placeholder stands for.
func (o *outgoing) value(placeholder string, in place, as encode) (string, error) {
	b := o.state.by[placeholder]
	if b == nil {
		return "", errForeignPlaceholder()
	}
	if err := o.may(b); err != nil {
		return "", err
	}
	if err := in(b); err != nil {
		return "", err
	}
	text, err := as(b)
	if err != nil {
		return "", err
	}
	if o.filled += len(text); o.filled > maxFilled {
		return "", fault.New(fault.Exhausted, "the values of secrets take more than %d MiB in one request", maxFilled>>20).
			WithHint("write fewer placeholders into one request")
	}
	o.used = append(o.used, b.id)
	return text, nil
}

// maxFilled bounds the bytes of values that are put into one request, as they are written
// there: a program writes a placeholder as often as it likes, and a value may be hundreds
// of times as long.
const maxFilled = 4 << 20

// nowhere is a place where no secret may stand.
func nowhere(where string) place {
	return func(*sessionSecret) error { return errMalformedPlaceholder(where) }
}

func asItIs(b *sessionSecret) (string, error) { return string(b.value), nil }

// target looks at what says where the request goes.
func (o *outgoing) target() error {
	u := o.r.URL
	parts := []string{o.r.Method, u.Host, o.r.Host, o.host, u.Opaque, u.Path, u.RawPath, u.Fragment}
	if u.User != nil {
		parts = append(parts, u.User.String())
	}
	for _, part := range parts {
		if _, err := o.fill(part, "the URL", nowhere("the URL"), asItIs); err != nil {
			return err
		}
	}
	return nil
}

// query looks at the query, parameter by parameter, and leaves those alone into which
// nothing is put.
func (o *outgoing) query() error {
	const where = "the query"
	parts := strings.Split(o.r.URL.RawQuery, "&")
	for i, part := range parts {
		rawName, rawValue, _ := strings.Cut(part, "=")
		name, errName := url.QueryUnescape(rawName)
		value, errValue := url.QueryUnescape(rawValue)
		if errName != nil || errValue != nil || marks.In(rawName) || !strings.Contains(value, Marker) {
			if _, err := o.fill(part, where, nowhere(where), asItIs); err != nil {
				return err
			}
			continue
		}
		filled, err := o.fill(value, where, func(b *sessionSecret) error {
			for _, n := range b.places.query {
				if n == name {
					return nil
				}
			}
			return b.errPlace("the query", "query:"+clip(name))
		}, asItIs)
		if err != nil {
			return err
		}
		parts[i] = rawName + "=" + url.QueryEscape(filled)
	}
	o.r.URL.RawQuery = strings.Join(parts, "&")
	return nil
}

// clip shortens a program's word for a message.
func clip(s string) string { return s[:min(len(s), 80)] }

// headers looks at the header, and at the names of what is to follow the body.
func (o *outgoing) headers() error {
	for name := range o.r.Trailer {
		if marks.In(name) {
			return errMalformedPlaceholder("the name of a header")
		}
	}
	for name, values := range o.r.Header {
		if marks.In(name) {
			return errMalformedPlaceholder("the name of a header")
		}
		for i, value := range values {
			filled, err := o.header(name, value)
			if err != nil {
				return err
			}
			values[i] = filled
		}
	}
	o.readable()
	return nil
}

func (o *outgoing) header(name, value string) (string, error) {
	if scheme, rest, found := strings.Cut(value, " "); found && strings.EqualFold(scheme, "basic") && http.CanonicalHeaderKey(name) == "Authorization" {
		if login, ok := decodeLogin(rest); ok && marks.In(login) {
			filled, err := o.fill(login, "the password of basic authentication", func(b *sessionSecret) error {
				if !b.places.basic {
					return b.errPlace("basic authentication", "basic")
				}
				return nil
			}, asItIs)
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(filled)), err
		}
	}
	const where = "a header"
	return o.fill(value, where, func(b *sessionSecret) error {
		if !b.places.inHeader(name) {
			return b.errPlace("the header "+clip(name), "header:"+clip(name))
		}
		return nil
	}, func(b *sessionSecret) (string, error) {
		if !fitsHeader(b.value) {
			return "", fault.New(fault.Denied, "the secret %s has more than one line, or control characters, which no header can hold", b.name)
		}
		return string(b.value), nil
	})
}

// decodeLogin reads a user and a password, as lenient as servers are.
func decodeLogin(text string) (string, bool) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	login, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		login, err = base64.RawURLEncoding.DecodeString(text)
	}
	return string(login), err == nil
}

// readable has the host answer so that values in its answers can be found: in encodings
// that are known here, and, where the host may know a value, not in parts of the
// program's choice, between which one could be divided.
func (o *outgoing) readable() {
	if len(o.state.all) == 0 && len(o.state.older) == 0 {
		return
	}
	h := o.r.Header
	if o.forHost {
		for _, name := range []string{"Range", "If-Range", "Request-Range"} {
			h.Del(name)
		}
	}
	if h.Get("Range") != "" || h.Get("Request-Range") != "" {
		h.Set("Accept-Encoding", "identity")
		return
	}
	if asked := h.Values("Accept-Encoding"); len(asked) > 0 {
		h.Set("Accept-Encoding", knownOf(strings.Join(asked, ",")))
	}
}

package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"paddock/internal/fault"
)

// byteOrderMark is what some editors on Windows begin a file with.
const byteOrderMark = "\ufeff"

// mistake is why and where a file cannot be read.
type mistake struct {
	line, column int // from one; zero: not known
	what         string
}

func (m *mistake) Error() string { return m.what }

// unreadable says where a client's file is wrong. What stands there is not
// repeated: it may be a secret.
func (c *Client) unreadable(err error) error {
	f := fault.New(fault.Invalid, "the configuration of %s cannot be read: %v", c.Title, err).WithCause(err)
	var at *mistake
	if errors.As(err, &at) && at.line > 0 {
		f = fault.New(fault.Invalid, "the configuration of %s cannot be read: line %d, column %d: %s", c.Title, at.line, at.column, at.what).WithCause(err)
	}
	return f.WithHint("mend it first; nothing was changed")
}

// readPlainJSON reads a file whose reader knows no comments.
func readPlainJSON(b []byte) (map[string]any, error) {
	b = bytes.TrimPrefix(b, []byte(byteOrderMark))
	if len(bytes.TrimSpace(b)) == 0 {
		return map[string]any{}, nil
	}
	var data any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err := d.Decode(&data)
	if err == nil && len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
		return nil, &mistake{1 + bytes.Count(b[:d.InputOffset()], []byte("\n")), 1, "there is something behind the end"}
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		before := b[:max(0, min(int(syntax.Offset)-1, len(b)))]
		return nil, &mistake{1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n'), "it is not plain JSON"}
	case err != nil:
		return nil, &mistake{what: "it ends in the middle"}
	}
	return object(data)
}

// readCommentedJSON reads a file that may have comments and trailing commas.
func readCommentedJSON(b []byte) (map[string]any, error) {
	b = bytes.TrimPrefix(b, []byte(byteOrderMark))
	if len(bytes.TrimSpace(b)) == 0 {
		return map[string]any{}, nil
	}
	plain, err := hujson.Standardize(slices.Clone(b))
	if err != nil {
		at := &mistake{what: "it is not JSON"}
		if n, _ := fmt.Sscanf(err.Error(), "hujson: line %d, column %d", &at.line, &at.column); n != 2 {
			at.line = 0
		}
		return nil, at
	}
	return readPlainJSON(plain)
}

func object(data any) (map[string]any, error) {
	o, ok := data.(map[string]any)
	if !ok {
		return nil, &mistake{what: "it is not an object"}
	}
	return o, nil
}

// readTOML reads a TOML file.
func readTOML(b []byte) (map[string]any, error) {
	data := map[string]any{}
	_, err := toml.Decode(strings.TrimPrefix(string(b), byteOrderMark), &data)
	var at toml.ParseError
	if errors.As(err, &at) {
		return nil, &mistake{at.Position.Line, at.Position.Col, "it is not TOML"}
	}
	return data, err
}

// editJSON sets or removes (nil) the entry name below the member table. Bytes
// that it does not have to change stay.
func editJSON(old []byte, table, name string, e *entry) ([]byte, error) {
	text, mark := bytes.CutPrefix(old, []byte(byteOrderMark))
	if len(bytes.TrimSpace(text)) == 0 {
		if e == nil {
			return old, nil
		}
		text = []byte("{}\n")
	}
	root, err := hujson.Parse(slices.Clone(text))
	if err != nil {
		return nil, err
	}
	s := styleOf(text, root)
	servers, err := s.objectAt(&root, table, 0, e != nil)
	if err != nil || servers == nil {
		return old, err
	}
	if e == nil {
		remove(servers, name)
	} else {
		own, err := s.objectAt(&hujson.Value{Value: servers}, name, 1, true)
		if err != nil {
			return nil, err
		}
		s.fill(own, e)
	}
	text = root.Pack()
	if mark {
		text = append([]byte(byteOrderMark), text...)
	}
	return text, nil
}

// fill sets the members of an entry, which stands two levels deep.
func (s style) fill(own *hujson.Object, e *entry) {
	for _, k := range e.dropped() {
		remove(own, k)
	}
	for _, m := range e.members {
		if headers, ok := m.value.(map[string]string); ok {
			if o, ok := valueOf(own, m.key).(*hujson.Object); ok {
				for _, h := range sorted(headers) {
					s.set(o, h, headers[h], 4)
				}
				continue
			}
		}
		s.set(own, m.key, m.value, 3)
	}
	for _, m := range e.defaults {
		if valueOf(own, m.key) == nil {
			s.set(own, m.key, m.value, 3)
		}
	}
}

// objectAt gives the member key of v, which has to be an object; it makes one
// that is missing if create is set, and gives nil if not. v is depth deep.
func (s style) objectAt(v *hujson.Value, key string, depth int, create bool) (*hujson.Object, error) {
	o := v.Value.(*hujson.Object)
	value := valueOf(o, key)
	switch found := value.(type) {
	case *hujson.Object:
		return found, nil
	case nil:
		if !create {
			return nil, nil
		}
		made := &hujson.Object{}
		s.add(o, key, made, depth+1)
		return made, nil
	}
	return nil, fault.New(fault.Conflict, "%s is not an object there", key).
		WithHint("mend it first; nothing was changed")
}

// index is the last member of that name, which is the one that readers take.
func index(o *hujson.Object, key string) int {
	for i, m := range slices.Backward(o.Members) {
		if name, ok := m.Name.Value.(hujson.Literal); ok && name.String() == key {
			return i
		}
	}
	return -1
}

func valueOf(o *hujson.Object, key string) hujson.ValueTrimmed {
	if i := index(o, key); i >= 0 {
		return o.Members[i].Value.Value
	}
	return nil
}

func sorted(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Package schema is about the JSON Schemas of tools: it reads them in the order
// in which they were written, checks arguments against them, and learns what
// results look like where a server says nothing of it.
//
// Schemas and values are foreign bytes. Whatever is read is bounded in size,
// depth and numbers first, nothing is fetched, and no regular expression runs
// but in RE2.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"paddock/internal/textsafe"
)

// Kind is what a [Value] is.
type Kind uint8

// The kinds of JSON values. The zero Kind is none: what a missing member gives.
const (
	None Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Value is a JSON value whose members are in the order of the text. The zero
// Value is not a value at all.
type Value struct {
	Kind    Kind
	Bool    bool
	Text    string // of a string; of a number its literal, digit for digit
	Items   []Value
	Members []Member
}

// Member is one name and value of an object.
type Member struct {
	Name  string
	Value Value
}

// Limits are the bounds of [Decode]; each has to be set.
type Limits struct {
	Bytes  int // of the text
	Depth  int // of arrays and objects in each other
	Values int // in all
}

// What a number may be. A float64 has no more than 17 digits and an exponent of
// 308; integers of 2048 bits fit. Beyond that exact arithmetic, which a schema's
// minimum asks for, costs what the writer of the number likes.
const (
	maxDigits   = 620
	maxExponent = 400
)

// Errors that Decode returns, wrapped.
var (
	errTooLarge = errors.New("it is larger than is read")
	errTooDeep  = errors.New("it is nested more deeply than is read")
)

// Decode reads the one JSON value that raw is. Twice the same name in an object
// is an error, since no two readers agree on what it means; so is a number that
// exact arithmetic could not bear.
func Decode(raw []byte, limits Limits) (Value, error) {
	if len(raw) > limits.Bytes {
		return Value{}, fmt.Errorf("%w: %d bytes of at most %d", errTooLarge, len(raw), limits.Bytes)
	}
	d := decoder{json: json.NewDecoder(bytes.NewReader(raw)), limits: limits}
	d.json.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return Value{}, err
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return Value{}, errors.New("there is more than one value")
	}
	return v, nil
}

type decoder struct {
	json   *json.Decoder
	limits Limits
	values int
}

func (d *decoder) value(depth int) (Value, error) {
	t, err := d.json.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Value{}, fmt.Errorf("it is not JSON: %w", err)
	}
	if d.values++; d.values > d.limits.Values {
		return Value{}, fmt.Errorf("%w: more than %d values", errTooLarge, d.limits.Values)
	}
	switch t := t.(type) {
	case nil:
		return Value{Kind: Null}, nil
	case bool:
		return Value{Kind: Bool, Bool: t}, nil
	case string:
		return Value{Kind: String, Text: t}, nil
	case json.Number:
		return Value{Kind: Number, Text: t.String()}, checkNumber(t.String())
	}
	if depth++; depth > d.limits.Depth {
		return Value{}, fmt.Errorf("%w: %d levels", errTooDeep, depth)
	}
	if t == json.Delim('[') {
		return d.array(depth)
	}
	return d.object(depth)
}

func (d *decoder) array(depth int) (Value, error) {
	v := Value{Kind: Array}
	for d.json.More() {
		item, err := d.value(depth)
		if err != nil {
			return Value{}, err
		}
		v.Items = append(v.Items, item)
	}
	return v, d.end()
}

func (d *decoder) object(depth int) (Value, error) {
	v := Value{Kind: Object}
	names := map[string]bool{}
	for d.json.More() {
		t, err := d.json.Token()
		if err != nil {
			return Value{}, fmt.Errorf("it is not JSON: %w", err)
		}
		name, ok := t.(string)
		if !ok {
			return Value{}, errors.New("it is not JSON: a name is missing")
		}
		if names[name] {
			return Value{}, fmt.Errorf("the name %s is there twice", textsafe.Quote(name))
		}
		names[name] = true
		member, err := d.value(depth)
		if err != nil {
			return Value{}, err
		}
		v.Members = append(v.Members, Member{name, member})
	}
	return v, d.end()
}

func (d *decoder) end() error {
	if _, err := d.json.Token(); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	return nil
}

func checkNumber(literal string) error {
	digits, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	if len(digits) > maxDigits {
		return fmt.Errorf("a number has %d digits; at most %d are read", len(digits), maxDigits)
	}
	if exponent == "" {
		return nil
	}
	if n, err := strconv.Atoi(exponent); err != nil || n > maxExponent || n < -maxExponent {
		return fmt.Errorf("a number has an exponent beyond %d", maxExponent)
	}
	return nil
}

// Get gives the member of an object; the zero Value when there is none.
func (v Value) Get(name string) Value {
	for _, m := range v.Members {
		if m.Name == name {
			return m.Value
		}
	}
	return Value{}
}

// plain gives the value as encoding/json would, with json.Number for numbers.
func (v Value) plain() any {
	switch v.Kind {
	case Bool:
		return v.Bool
	case Number:
		return json.Number(v.Text)
	case String:
		return v.Text
	case Array:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			list[i] = item.plain()
		}
		return list
	case Object:
		object := make(map[string]any, len(v.Members))
		for _, m := range v.Members {
			object[m.Name] = m.Value.plain()
		}
		return object
	}
	return nil
}

// JSON gives the value as JSON on one line, members in their order.
func (v Value) JSON() string {
	var b strings.Builder
	v.write(&b, false)
	return b.String()
}

// Canonical gives the value as JSON in which members are ordered by their names:
// the same for two texts that differ in white space, in the order of members and
// in how characters are escaped, and in nothing else.
func (v Value) Canonical() string {
	var b strings.Builder
	v.write(&b, true)
	return b.String()
}

func (v Value) write(b *strings.Builder, ordered bool) {
	switch v.Kind {
	case Bool:
		b.WriteString(strconv.FormatBool(v.Bool))
	case Number:
		b.WriteString(v.Text)
	case String:
		writeText(b, v.Text)
	case Array:
		b.WriteByte('[')
		for i, item := range v.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b, ordered)
		}
		b.WriteByte(']')
	case Object:
		members := v.Members
		if ordered {
			members = append([]Member(nil), members...)
			sort.Slice(members, func(i, j int) bool { return members[i].Name < members[j].Name })
		}
		b.WriteByte('{')
		for i, m := range members {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, m.Name)
			b.WriteByte(':')
			m.Value.write(b, ordered)
		}
		b.WriteByte('}')
	default:
		b.WriteString("null")
	}
}

func writeText(b *strings.Builder, s string) {
	text, err := json.Marshal(s)
	if err != nil {
		text = []byte(`""`) // a string cannot fail to be marshalled
	}
	b.Write(text)
}

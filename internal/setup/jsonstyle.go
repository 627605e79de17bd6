package setup

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/tailscale/hujson"
)

// style is how a JSON file is laid out.
type style struct{ newline, indent string }

// styleOf takes the style of the file's own first lines; else lines end in \n
// and are indented by two spaces.
func styleOf(text []byte, root hujson.Value) style {
	s := style{"\n", "  "}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if o, ok := root.Value.(*hujson.Object); ok && len(o.Members) > 0 {
		before := string(o.Members[0].Name.BeforeExtra)
		if i := strings.LastIndexByte(before, '\n'); i >= 0 && i+1 < len(before) && strings.Trim(before[i+1:], " \t") == "" {
			s.indent = before[i+1:]
		}
	}
	return s
}

// line begins a line that is depth deep.
func (s style) line(depth int) hujson.Extra {
	return hujson.Extra(s.newline + strings.Repeat(s.indent, depth))
}

// set gives a member of o, whose members are depth deep, a value. One that has
// it already stays as it is written.
func (s style) set(o *hujson.Object, key string, value any, depth int) {
	i := index(o, key)
	if i < 0 {
		s.add(o, key, s.value(value, depth), depth)
		return
	}
	v := &o.Members[i].Value
	if !says(*v, value) {
		v.Value = s.value(value, depth)
	}
}

// says tells whether v is that value, however it is written.
func says(v hujson.Value, value any) bool {
	v = v.Clone()
	v.Standardize()
	want, err := json.Marshal(value)
	var a, b any
	return err == nil && json.Unmarshal(v.Pack(), &a) == nil && json.Unmarshal(want, &b) == nil && reflect.DeepEqual(a, b)
}

// value lays a value out: a map over lines, anything else on one.
func (s style) value(value any, depth int) hujson.ValueTrimmed {
	if m, ok := value.(map[string]string); ok {
		o := &hujson.Object{}
		for _, k := range sorted(m) {
			s.add(o, k, hujson.String(m[k]), depth+1)
		}
		return o
	}
	list, ok := value.([]string)
	if !ok {
		switch v := value.(type) {
		case int64:
			return hujson.Int(v)
		case bool:
			return hujson.Bool(v)
		}
		return hujson.String(value.(string))
	}
	array := &hujson.Array{}
	for i, text := range list {
		v := hujson.Value{Value: hujson.String(text)}
		if i > 0 {
			v.BeforeExtra = hujson.Extra(" ")
		}
		array.Elements = append(array.Elements, v)
	}
	return array
}

// add puts a member at the end of o, whose members are depth deep. A comment
// that stands behind the last one stays there, and so does a trailing comma.
func (s style) add(o *hujson.Object, key string, value hujson.ValueTrimmed, depth int) {
	m := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: join(bytes.TrimRight(o.AfterExtra, blank), s.line(depth)), Value: hujson.String(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
	}
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		m.Value.AfterExtra = hujson.Extra{} // not nil: hujson's sign of a trailing comma
	}
	o.AfterExtra = s.line(depth - 1)
	o.Members = append(o.Members, m)
}

// remove takes every member of that name out of o, with the comment behind it;
// comments above it stay, for they may be about more.
func remove(o *hujson.Object, key string) {
	for i := index(o, key); i >= 0; i = index(o, key) {
		gone := o.Members[i]
		above := hujson.Extra(bytes.TrimRight(gone.Name.BeforeExtra, blank))
		next := &o.AfterExtra
		if i+1 < len(o.Members) {
			next = &o.Members[i+1].Name.BeforeExtra
		} else if i > 0 {
			previous := &o.Members[i-1].Value
			if gone.Value.AfterExtra == nil {
				above = bytes.TrimRight(join(previous.AfterExtra, above), blank)
				previous.AfterExtra = nil
			} else if previous.AfterExtra == nil {
				previous.AfterExtra = hujson.Extra{}
			}
		}
		rest := afterLine(*next)
		if len(above) > 0 && !bytes.HasPrefix(bytes.TrimLeft(rest, "\r"), []byte("\n")) {
			above = append(above, '\n')
		}
		*next = join(above, rest)
		o.Members = append(o.Members[:i], o.Members[i+1:]...)
		if len(o.Members) == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0 {
			o.AfterExtra = nil
		}
	}
}

// blank is what may stand anywhere in JSON.
const blank = " \t\r\n"

func join(a, b hujson.Extra) hujson.Extra {
	return append(append(hujson.Extra{}, a...), b...)
}

// afterLine is what stands between two members without what is on the first
// one's line; all of it when there is but one line. The newline belongs to it.
func afterLine(extra hujson.Extra) hujson.Extra {
	for i := 0; i < len(extra); i++ {
		switch {
		case bytes.HasPrefix(extra[i:], []byte("/*")):
			i += 3 + bytes.Index(extra[i+2:], []byte("*/"))
		case bytes.HasPrefix(extra[i:], []byte("//")):
			if n := bytes.IndexByte(extra[i:], '\n'); n >= 0 {
				return extra[i+n:]
			}
			return nil
		case extra[i] == '\n':
			return extra[i:]
		}
	}
	return extra
}

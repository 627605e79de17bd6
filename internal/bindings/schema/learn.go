package schema

import (
	"encoding/json"
	"slices"
	"sort"
	"strings"
)

// LearnedMark is the keyword, true, at the top of a schema that [Learn] made.
const LearnedMark = "x-learned"

// The bounds of a learned schema: it is a hint for people and models.
const (
	learnedDepth   = 6
	learnedNames   = 64  // more names than that are data, such as ids
	learnedName    = 100 // bytes; a longer name is data, too
	learnedItems   = 100 // items of a list that are looked at
	learnedBytes   = 16 << 10
	learnedSubject = 1 << 20 // bytes of a result that is looked at
)

// Learned tells whether a schema was made by [Learn].
func Learned(output json.RawMessage) bool {
	if len(output) > 2*learnedBytes {
		return false
	}
	v, err := Decode(output, schemaLimits)
	return err == nil && v.Get(LearnedMark).Bool
}

// Learn gives a schema that allows what schema allows and value as well: what is
// known of a tool's results by looking at them. It is bounded in size and depth,
// is marked with [LearnedMark], holds names and types and no values, and is the
// same for the same results in whatever order they came. Nil schema: the first
// result. A schema that a server gave itself, and a value that cannot be read,
// change nothing. The caller leaves out results that are errors.
func Learn(schema, value json.RawMessage) json.RawMessage {
	known := &shape{}
	if len(schema) > 0 {
		v, err := Decode(schema, schemaLimits)
		if err != nil || !v.Get(LearnedMark).Bool {
			return schema
		}
		known = shapeOfSchema(v)
	}
	v, err := Decode(value, Limits{Bytes: learnedSubject, Depth: 200, Values: 300_000})
	if err != nil {
		return schema
	}
	known.merge(shapeOf(v, learnedDepth))
	for depth := learnedDepth; ; depth-- {
		text := known.schema(depth, true).JSON()
		if len(text) <= learnedBytes || depth == 0 {
			return json.RawMessage(text)
		}
	}
}

// shape is what is known of a value. The zero shape is nothing yet.
type shape struct {
	types    map[string]bool // names of JSON Schema's types
	names    map[string]*shape
	required map[string]bool // names that every object had
	values   *shape          // of an object whose names are data; names is nil then
	items    *shape
}

func (s *shape) is(name string) {
	if s.types == nil {
		s.types = map[string]bool{}
	}
	s.types[name] = true
}

func shapeOf(v Value, depth int) *shape {
	s := &shape{}
	switch v.Kind {
	case Null:
		s.is("null")
	case Bool:
		s.is("boolean")
	case String:
		s.is("string")
	case Number:
		if strings.ContainsAny(v.Text, ".eE") {
			s.is("number")
		} else {
			s.is("integer")
		}
	case Array:
		s.is("array")
		if depth == 0 {
			return s
		}
		for i, item := range v.Items {
			if i == learnedItems {
				break
			}
			if s.items == nil {
				s.items = &shape{}
			}
			s.items.merge(shapeOf(item, depth-1))
		}
	case Object:
		s.is("object")
		if depth > 0 {
			s.object(v, depth)
		}
	}
	return s
}

func (s *shape) object(v Value, depth int) {
	s.names, s.required = map[string]*shape{}, map[string]bool{}
	for i, m := range v.Members {
		if i > 10*learnedNames {
			break
		}
		s.names[m.Name], s.required[m.Name] = shapeOf(m.Value, depth-1), true
	}
	s.widen()
}

// widen makes names that are data into a map of values.
func (s *shape) widen() {
	long := false
	for name := range s.names {
		long = long || len(name) > learnedName
	}
	if s.values == nil && len(s.names) <= learnedNames && !long {
		return
	}
	if s.values == nil {
		s.values = &shape{}
	}
	for _, name := range sortedNames(s.names) {
		s.values.merge(s.names[name])
	}
	s.names, s.required = nil, nil
}

// merge makes s allow what o allows.
func (s *shape) merge(o *shape) {
	had := s.types["object"]
	for name := range o.types {
		s.is(name)
	}
	if s.types["number"] {
		delete(s.types, "integer")
	}
	if o.items != nil {
		if s.items == nil {
			s.items = &shape{}
		}
		s.items.merge(o.items)
	}
	if !o.types["object"] {
		return
	}
	if o.values != nil && s.values == nil {
		s.values = &shape{}
	}
	if o.values != nil {
		s.values.merge(o.values)
	}
	s.mergeNames(o, had)
	s.widen()
}

func (s *shape) mergeNames(o *shape, had bool) {
	if s.names == nil {
		s.names, s.required = map[string]*shape{}, map[string]bool{}
	}
	for name := range s.required {
		if !o.required[name] {
			delete(s.required, name)
		}
	}
	for name, of := range o.names {
		if s.names[name] == nil {
			s.names[name] = &shape{}
			if !had && o.required[name] {
				s.required[name] = true
			}
		}
		s.names[name].merge(of)
	}
}

func sortedNames(m map[string]*shape) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// schema writes s, down to a depth.
func (s *shape) schema(depth int, top bool) Value {
	v := Value{Kind: Object}
	add := func(name string, of Value) { v.Members = append(v.Members, Member{name, of}) }
	if top {
		add(LearnedMark, Value{Kind: Bool, Bool: true})
	}
	types := []Value{}
	for name := range s.types {
		types = append(types, Value{Kind: String, Text: name})
	}
	slices.SortFunc(types, func(a, b Value) int { return strings.Compare(a.Text, b.Text) })
	if len(types) == 1 {
		add("type", types[0])
	} else if len(types) > 1 {
		add("type", Value{Kind: Array, Items: types})
	}
	if depth == 0 {
		return v
	}
	if s.items != nil {
		add("items", s.items.schema(depth-1, false))
	}
	if s.values != nil {
		add("additionalProperties", s.values.schema(depth-1, false))
	}
	properties, required := Value{Kind: Object}, Value{Kind: Array}
	for _, name := range sortedNames(s.names) {
		properties.Members = append(properties.Members, Member{name, s.names[name].schema(depth-1, false)})
		if s.required[name] {
			required.Items = append(required.Items, Value{Kind: String, Text: name})
		}
	}
	if len(properties.Members) > 0 {
		add("properties", properties)
	}
	if len(required.Items) > 0 {
		add("required", required)
	}
	return v
}

// shapeOfSchema reads what schema wrote.
func shapeOfSchema(v Value) *shape {
	s := &shape{}
	types := v.Get("type")
	if types.Kind == String {
		s.is(types.Text)
	}
	for _, t := range types.Items {
		s.is(t.Text)
	}
	if items := v.Get("items"); items.Kind == Object {
		s.items = shapeOfSchema(items)
	}
	if values := v.Get("additionalProperties"); values.Kind == Object {
		s.values = shapeOfSchema(values)
	}
	if properties := v.Get("properties"); properties.Kind == Object {
		s.names, s.required = map[string]*shape{}, map[string]bool{}
		for _, m := range properties.Members {
			s.names[m.Name] = shapeOfSchema(m.Value)
		}
		for _, name := range v.Get("required").Items {
			if s.names[name.Text] != nil {
				s.required[name.Text] = true
			}
		}
	}
	return s
}

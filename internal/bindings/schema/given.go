package schema

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Given is what a call gives: its arguments without those that are null where the tool's
// schema says that they may be left out and that null is none of their values. Programs in
// Python pass None, and in JavaScript null, for what they do not give. Arguments that have
// none of these are what they were, and so are those that cannot be read.
func Given(input, arguments json.RawMessage) json.RawMessage {
	if !bytes.Contains(arguments, []byte("null")) || len(input) == 0 {
		return arguments
	}
	tool, err := Decode(input, schemaLimits)
	if err != nil {
		return arguments
	}
	v, err := Decode(arguments, argumentsLimits)
	if err != nil || v.Kind != Object {
		return arguments
	}
	properties, required := tool.Get("properties"), tool.Get("required").Items
	before := len(v.Members)
	v.Members = slices.DeleteFunc(v.Members, func(m Member) bool {
		return m.Value.Kind == Null && !slices.ContainsFunc(required, func(r Value) bool { return r.Text == m.Name }) &&
			neverNull(properties.Get(m.Name))
	})
	if len(v.Members) == before {
		return arguments
	}
	return json.RawMessage(v.JSON())
}

// neverNull tells whether a schema's own words leave null out.
func neverNull(s Value) bool {
	null := func(v Value) bool { return v.Kind == Null || v.Text == "null" }
	switch is, among := s.Get("type"), s.Get("enum"); {
	case is.Kind == String:
		return is.Text != "null"
	case is.Kind == Array:
		return !slices.ContainsFunc(is.Items, null)
	case among.Kind == Array:
		return !slices.ContainsFunc(among.Items, null)
	}
	return false
}

package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/google/jsonschema-go/jsonschema"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// param is one argument of a tool. Its schema and how it is decoded come from
// the same place, so that they cannot differ.
type param struct {
	name     string
	schema   *jsonschema.Schema
	required bool
	given    *bool // set when it is there; may be nil
	set      func(json.RawMessage) error
}

// must makes a param required.
func (p param) must() param {
	p.required = true
	return p
}

// noting remembers in given whether the argument was there.
func (p param) noting(given *bool) param {
	p.given = given
	return p
}

// text is a string of least to most characters.
func text(name string, to *string, least, most int, about string) param {
	s := &jsonschema.Schema{Type: "string", Description: about, MaxLength: &most}
	if least > 0 {
		s.MinLength = &least
	}
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		v, err := stringOf(raw)
		if err != nil {
			return err
		}
		if n := utf8.RuneCountInString(v); n < least || n > most {
			return fmt.Errorf("has %d to %d characters, not %d", least, most, n)
		}
		*to = v
		return nil
	}}
}

// choice is one of a few words; without any it is a short text.
func choice(name string, to *string, words []string, about string) param {
	if len(words) == 0 {
		return text(name, to, 0, 100, about)
	}
	s := &jsonschema.Schema{Type: "string", Description: about}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		v, err := stringOf(raw)
		if err != nil {
			return err
		}
		if !slices.Contains(words, v) {
			return fmt.Errorf("is one of %s, not %s", strings.Join(words, ", "), textsafe.QuoteShort(v))
		}
		*to = v
		return nil
	}}
}

// number is a whole number from least to most. 3.0 and 3e0 are whole.
func number(name string, to *int64, least, most int64, about string) param {
	low, high := float64(least), float64(most)
	s := &jsonschema.Schema{Type: "integer", Description: about, Minimum: &low, Maximum: &high}
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		v, ok := transport.WholeNumber(string(raw))
		if !ok || v < least || v > most {
			return fmt.Errorf("is a whole number from %d to %d", least, most)
		}
		*to = v
		return nil
	}}
}

// boolean is true or false.
func boolean(name string, to *bool, about string) param {
	return param{name: name, schema: &jsonschema.Schema{Type: "boolean", Description: about}, set: func(raw json.RawMessage) error {
		switch string(raw) {
		case "true", "false":
			*to = raw[0] == 't'
			return nil
		}
		return fmt.Errorf("is true or false")
	}}
}

// texts is a list of at most so many strings.
func texts(name string, to *[]string, most int, about string) param {
	s := &jsonschema.Schema{Type: "array", Description: about, Items: &jsonschema.Schema{Type: "string"}, MaxItems: &most}
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		var all []json.RawMessage
		if json.Unmarshal(raw, &all) != nil || len(all) > most {
			return fmt.Errorf("is a list of at most %d strings", most)
		}
		for _, one := range all {
			v, err := stringOf(one)
			if err != nil {
				return fmt.Errorf("holds something that %w", err)
			}
			*to = append(*to, v)
		}
		return nil
	}}
}

// named are at most so many texts by their names, each bounded in bytes. They are a list
// of "NAME:text", with this separator: a schema in OpenAI's strict mode has no object whose
// keys are open. An object is taken as well. What is wrong with one is told without it.
func named(name string, to *map[string]string, most, longest int, separator, about string) param {
	s := &jsonschema.Schema{Type: "array", Description: about, Items: &jsonschema.Schema{Type: "string"}, MaxItems: &most}
	wrong := fmt.Errorf("is a list of at most %d texts NAME%stext, or an object", most, separator)
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		all := map[string]string{}
		var listed []string
		if err := (texts(name, &listed, most, about)).set(raw); err == nil {
			for i, one := range listed {
				key, v, ok := strings.Cut(one, separator)
				if key = strings.TrimSpace(key); !ok || key == "" {
					return wrong
				}
				if _, twice := all[key]; twice || len(v) > longest {
					return fmt.Errorf("holds a text that is too long, or of a name that was there, as number %d", i+1)
				}
				all[key] = strings.TrimSpace(v)
			}
			*to = all
			return nil
		}
		fields, err := fieldsOf(raw)
		if err != nil || len(fields) > most || len(raw) == 0 || raw[0] != '{' {
			return wrong
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			v, err := stringOf(fields[field])
			if err != nil || len(v) > longest {
				return fmt.Errorf("holds %s, which is not text of at most %d bytes", textsafe.QuoteShort(field), longest)
			}
			all[field] = v
		}
		*to = all
		return nil
	}}
}

// nested is an object of some params.
func nested(name string, params []param, about string) param {
	s := inputSchema(params)
	s.Description = about
	return param{name: name, schema: s, set: func(raw json.RawMessage) error {
		if err := decode(raw, params); err != nil {
			return fmt.Errorf("is wrong: %w", err)
		}
		return nil
	}}
}

// sessionID names a session.
func sessionID(to *session.ID, about string) param {
	s := &jsonschema.Schema{Type: "string", Description: about, Pattern: transport.SessionPattern, Extra: map[string]any{"x-mcp-header": transport.SessionHeader}}
	return param{name: "session_id", schema: s, set: func(raw json.RawMessage) error {
		v, err := stringOf(raw)
		if err != nil {
			return err
		}
		if !transport.IsSessionName(v) {
			return fmt.Errorf("has 1 to 100 letters, digits, - and _")
		}
		*to = session.ID(v)
		return nil
	}}
}

// stringOf decodes a JSON string; half a surrogate pair, which would silently
// become another character, is refused.
func stringOf(raw json.RawMessage) (string, error) {
	var v string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &v) != nil {
		return "", fmt.Errorf("is a string")
	}
	if halfSurrogate(raw) {
		return "", fmt.Errorf("holds half of a character (an unpaired surrogate)")
	}
	return v, nil
}

func halfSurrogate(raw []byte) bool {
	for k := 0; k+1 < len(raw); k++ {
		if raw[k] != '\\' {
			continue
		}
		r, ok := escapedRune(raw[k:])
		if !ok {
			k++ // \n, \\ and the like
			continue
		}
		k += 5
		if !utf16.IsSurrogate(r) {
			continue
		}
		second, ok := escapedRune(raw[k+1:])
		if !ok || utf16.DecodeRune(r, second) == utf8.RuneError {
			return true
		}
		k += 6
	}
	return false
}

// escapedRune reads what begins with \uXXXX.
func escapedRune(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(v), err == nil
}

// inputSchema is the schema of a tool's arguments. That there are no others is
// not in it: some clients take that out, and decode says it better.
func inputSchema(params []param) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	if len(params) == 0 { // a strict mode takes it for an object of anything
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range params {
		s.Properties[p.name] = p.schema
		s.PropertyOrder = append(s.PropertyOrder, p.name)
		if p.required {
			s.Required = append(s.Required, p.name)
		}
	}
	return s
}

// decode puts arguments where their params say. All mistakes are told at once.
// An optional argument that is null counts as missing.
func decode(raw json.RawMessage, params []param) error {
	given, err := fieldsOf(raw)
	if err != nil {
		return fault.New(fault.Invalid, "the arguments %v", err).WithHint("%s", takes(params))
	}
	var mistakes []string
	for _, p := range params {
		v, ok := given[p.name]
		delete(given, p.name)
		switch {
		case !ok && !p.required, ok && !p.required && string(v) == "null":
		case !ok:
			mistakes = append(mistakes, p.name+" is missing")
		default:
			if err := p.set(v); err != nil {
				mistakes = append(mistakes, p.name+" "+err.Error())
			}
			if p.given != nil {
				*p.given = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		mistakes = append(mistakes, unknown(name, params))
	}
	if len(mistakes) == 0 {
		return nil
	}
	if more := len(mistakes) - 8; more > 0 {
		mistakes = append(mistakes[:8], fmt.Sprintf("and %d more mistakes", more))
	}
	return fault.New(fault.Invalid, "%s", strings.Join(mistakes, "; ")).WithHint("%s", takes(params))
}

// fieldsOf takes a JSON object apart; a key that stands in it twice is a
// mistake. Nothing at all is an empty object.
func fieldsOf(raw json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return fields, nil
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("are not UTF-8")
	}
	if raw[0] != '{' || !json.Valid(raw) {
		return nil, fmt.Errorf("are not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		name, _ := key.(string)
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("hold %s twice", textsafe.QuoteShort(name))
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		fields[name] = v
	}
	return fields, nil
}

func takes(params []param) string {
	if len(params) == 0 {
		return "there are no arguments to give"
	}
	return "the arguments are " + strings.Join(namesOf(params), ", ")
}

func namesOf(params []param) []string {
	var names []string
	for _, p := range params {
		names = append(names, p.name)
	}
	return names
}

// unknown speaks of an argument that there is not, and of the one that was
// probably meant.
func unknown(name string, params []param) string {
	best, bestAt := "", 3
	for _, known := range namesOf(params) {
		if len(name) > 64 { // far from every name, and costly to compare
			break
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(name), known); d < bestAt {
			best, bestAt = known, d
		}
	}
	if best == "" {
		return "there is no argument " + textsafe.QuoteShort(name)
	}
	return fmt.Sprintf("there is no argument %s (did you mean %q?)", textsafe.QuoteShort(name), best)
}

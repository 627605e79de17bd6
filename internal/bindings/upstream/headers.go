package upstream

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// mirror is an argument that the modern era has a request repeat in a header: where
// it lies in the arguments, and the header's name.
type mirror struct {
	path   []string
	header string
}

const (
	// deepestMirror is how deep in a schema arguments are looked for that go into
	// headers, and mostMirrors how many there may be of a tool.
	deepestMirror = 8
	mostMirrors   = 32
)

// mirrors reads a tool's input schema for x-mcp-header. An error says that it breaks
// the rules: a header's name that is none or comes twice, or a type that is not text,
// a whole number or a truth value.
func mirrors(schema json.RawMessage) ([]mirror, error) {
	if !strings.Contains(string(schema), "x-mcp-header") {
		return nil, nil
	}
	seen := map[string]bool{}
	var all []mirror
	var walk func(schema json.RawMessage, path []string) bool
	walk = func(schema json.RawMessage, path []string) bool {
		var s struct {
			Type       any                        `json:"type"`
			Header     json.RawMessage            `json:"x-mcp-header"`
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(schema, &s) != nil || len(path) > deepestMirror {
			return true
		}
		if s.Header != nil {
			var name string
			if json.Unmarshal(s.Header, &name) != nil || !httpguts.ValidHeaderFieldName(name) || seen[strings.ToLower(name)] {
				return false
			}
			if s.Type != "string" && s.Type != "integer" && s.Type != "boolean" {
				return false
			}
			seen[strings.ToLower(name)] = true
			all = append(all, mirror{path, name})
		}
		for name, property := range s.Properties {
			if !walk(property, append(path[:len(path):len(path)], name)) {
				return false
			}
		}
		return len(all) <= mostMirrors
	}
	if !walk(schema, nil) {
		return nil, errors.New("its schema asks for headers that there cannot be")
	}
	return all, nil
}

// reflect gives the headers that arguments ask for.
func reflect(all []mirror, arguments json.RawMessage) http.Header {
	h := http.Header{}
	for _, m := range all {
		value, ok := lookup(arguments, m.path)
		if !ok {
			continue
		}
		var v any
		if json.Unmarshal(value, &v) != nil {
			continue
		}
		switch v := v.(type) {
		case string:
			h.Set("Mcp-Param-"+m.header, headerText(v))
		case bool:
			h.Set("Mcp-Param-"+m.header, strconv.FormatBool(v))
		case float64:
			if n := int64(v); float64(n) == v && n > -1<<53 && n < 1<<53 {
				h.Set("Mcp-Param-"+m.header, strconv.FormatInt(n, 10))
			}
		}
	}
	return h
}

func lookup(value json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil, false
		}
		inner, ok := object[name]
		if !ok {
			return nil, false
		}
		value = inner
	}
	return value, true
}

// headerText is text as the protocol has it in a header: as it is where that is
// plain, else in base64 with a mark around it.
func headerText(text string) string {
	plain := text != "" && strings.TrimSpace(text) == text && !strings.HasPrefix(text, "=?base64?")
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] >= ' ' && text[i] <= '~'
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

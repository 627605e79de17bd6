package jsonbound

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]error{
		`[[1,2],[3]]`:     nil,
		`[[[1]]]`:         ErrDeep,
		`{"a":{"b":{}}}`:  ErrDeep,
		`[1,2,3,4]`:       nil,
		`[1,2,3,4,5]`:     ErrMany,
		`"[[[[,,,,,\"["`:  nil,
		`["\\",[["]"]]]`:  ErrDeep,
		`[],[],[],[],[]`:  ErrMany,
		`["\u005b[[",""]`: nil,
	} {
		if err := Check([]byte(text), 2, 3); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// measure is how deep a JSON text is nested, and how many commas are between its values.
func measure(t *testing.T, data []byte) (depth, commas int) {
	d := json.NewDecoder(bytes.NewReader(data))
	var at []int // values and keys so far, of each level
	var objects []bool
	for {
		token, err := d.Token()
		if err != nil {
			return depth, commas
		}
		end := token == json.Delim('}') || token == json.Delim(']')
		if end {
			at, objects = at[:len(at)-1], objects[:len(objects)-1]
			continue
		}
		if n := len(at) - 1; n >= 0 {
			if at[n] > 0 && (!objects[n] || at[n]%2 == 0) {
				commas++
			}
			at[n]++
		}
		if token == json.Delim('{') || token == json.Delim('[') {
			at, objects = append(at, 0), append(objects, token == json.Delim('{'))
			depth = max(depth, len(at))
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, text := range []string{`[[1,2],{"a":"[,"}]`, `{"a":[],"b":{"\\":[[]]}}`, strings.Repeat("[", 50), `"\"[["`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const depth, parts = 4, 6
		err := Check(data, depth, parts)
		if !json.Valid(data) {
			return
		}
		deep, many := measure(t, data)
		if (err == nil) != (deep <= depth && many <= parts) {
			t.Errorf("%q is nested %d deep and has %d commas: %v", data, deep, many, err)
		}
	})
}

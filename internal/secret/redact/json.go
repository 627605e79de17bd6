package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// JSON gives a JSON text without what is to be replaced, and as JSON still: each string is
// looked through by itself, names too, and any other value that has something of it
// becomes a string. What "data" and "blob" hold in base64 stays base64. It gives the same
// slice where there is nothing to be replaced.
func (r *Redactor) JSON(text []byte) []byte {
	if !r.finds(text) {
		return text
	}
	out := make([]byte, 0, len(text))
	name, last := "", ""
	for at := 0; at < len(text); {
		part := token(text[at:])
		switch at += len(part); part[0] {
		case '"':
			out, last = append(out, r.quoted(part, name)...), string(part)
		case ':':
			out, name = append(out, ':'), last
		case ',', '{', '}', '[', ']', ' ', '\t', '\r', '\n':
			out, name = append(out, part...), ""
		default:
			if r.finds(part) {
				part = r.stead()
			}
			out = append(out, part...)
		}
	}
	return out
}

// finds tells whether there is something to be replaced.
func (r *Redactor) finds(text []byte) bool {
	if r == nil {
		return false
	}
	s := newScan(r.automaton)
	s.read(text)
	s.end()
	return len(s.spans) > 0
}

// token is what comes first: a string with its quotes, a run of what is neither quoted nor
// structure, or one byte.
func token(text []byte) []byte {
	if text[0] != '"' {
		n := bytes.IndexAny(text, ",:[]{}\" \t\r\n")
		if n < 0 {
			n = len(text)
		}
		return text[:max(1, n)]
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i+1]
		}
	}
	return text
}

// quoted is a string, which stands under a name; both have their quotes.
func (r *Redactor) quoted(part []byte, name string) []byte {
	if !r.finds(part) {
		return part
	}
	if name == `"data"` || name == `"blob"` {
		var held string
		if err := json.Unmarshal(part, &held); err == nil {
			if plain, err := base64.StdEncoding.DecodeString(held); err == nil {
				if clean := base64.StdEncoding.EncodeToString(r.Bytes(plain)); !r.finds([]byte(clean)) {
					return []byte(`"` + clean + `"`)
				}
			}
		}
	}
	if clean := r.Bytes(part); json.Valid(clean) && len(clean) > 1 && clean[0] == '"' {
		return clean
	}
	return r.stead() // it took a part of an escape, or a quote
}

// stead is a string for a value none of which can stay.
func (r *Redactor) stead() []byte {
	text, err := json.Marshal(r.instead[0])
	if err != nil {
		panic(err) // a string is always written
	}
	return text
}

package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// What is read of a stream does not depend on how it arrives, and stays in its bounds.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"data: a\n\n", "id: 1\r\ndata: a\r\ndata: b\r\n\r\n", "data:a\r\rdata: b\r\r", "\ufeffevent: endpoint\ndata: /x\n\n", ": c\n\nretry: 10\n\n",
		"data\n\ndata: x", "id: a\x00b\ndata\n\n", "\r\n\r\n", "retry: -1\nretry: 99999999999\n\n",
	} {
		f.Add([]byte(text))
	}
	const limit = 64
	read := func(r io.Reader) (all []event, last error) {
		next := events(r, limit)
		for {
			e, err := next()
			if err != nil {
				return all, err
			}
			all = append(all, e)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, err := read(bytes.NewReader(data))
		pieces, other := read(iotest.OneByteReader(bytes.NewReader(data)))
		if len(whole) != len(pieces) {
			t.Fatalf("got %d events of the whole and %d of the pieces, want the same", len(whole), len(pieces))
		}
		if errors.Is(err, io.EOF) != errors.Is(other, io.EOF) {
			t.Fatalf("the whole ended with %v and the pieces with %v, want the end in both or in none", err, other)
		}
		for i, e := range whole {
			switch {
			case !bytes.Equal(e.data, pieces[i].data):
				t.Errorf("e.data = %q, want %q; event %d is %+v or %+v", e.data, pieces[i].data, i, e, pieces[i])
			case e.id != pieces[i].id:
				t.Errorf("e.id = %v, want %v; event %d is %+v or %+v", e.id, pieces[i].id, i, e, pieces[i])
			case e.name != pieces[i].name:
				t.Errorf("e.name = %v, want %v; event %d is %+v or %+v", e.name, pieces[i].name, i, e, pieces[i])
			case e.retry != pieces[i].retry:
				t.Errorf("e.retry = %v, want %v; event %d is %+v or %+v",
					e.retry, pieces[i].retry, i, e, pieces[i])
			case e.retry < 0:
				t.Errorf("e.retry = %v, want at least 0; event %d is %+v or %+v", e.retry, i, e, pieces[i])
			}
			if len(e.data)+len(e.id)+len(e.name) > limit {
				t.Errorf("event %d is too long", i)
			}
		}
	})
}

// A message of a server's is understood or refused, and what is kept of it is JSON.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":1}}}`,
		`{"id":"1","error":{"code":-1,"message":"x","data":[1]}}`, `{"method":"ping","id":null}`, `[]`, `{}`, `{"result":null}`,
		`{"id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}],"ttlMs":-5,"nextCursor":"x"}}`,
		`{"id":1,"result":{"content":[{"type":"image","data":"AA=="},{"type":"resource","resource":{"blob":"AA"}},{"type":"resource_link","uri":"u","size":1e99}]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		value, err := m.outcome()
		if err != nil {
			switch text := asProblem(err, true).text; {
			case !utf8.ValidString(text):
				t.Errorf("the message: utf8.ValidString(text) = false, want true: %q", text)
			case strings.ContainsAny(text, "\n\x1b"):
				t.Errorf("the message: text = %q, want none of %q in it", text, "\n\x1b")
			case len(text) > 1000:
				t.Errorf("the message: len(text) = %d, want at most 1000", len(text))
			}
			return
		}
		if r, err := readResult(value); err == nil {
			if r.Structured != nil && !json.Valid(r.Structured) {
				t.Errorf("it is not JSON: %q", r.Structured)
			}
			_ = newOutputCheck(json.RawMessage(`{"type":"object","required":["a"]}`)).check(r)
		}
		entries, _, age, err := readTools(value)
		if err != nil {
			return
		}
		if age < leastAge || age > longestAge {
			t.Errorf("the list's age is %v, want from %v to %v", age, leastAge, longestAge)
		}
		g := &gathering{names: map[string]bool{}}
		for _, entry := range entries {
			g.take(entry, true)
		}
		if got := len(g.tools) + g.outs; got != len(entries) {
			t.Errorf("%d entries are tools or left out, want %d", got, len(entries))
		}
		if told := g.leftOut(); len(told) > maxLeftOut+1 {
			t.Errorf("%d lines say what is left out, want at most %d: %q", len(told), maxLeftOut+1, told)
		}
		for _, tool := range g.tools {
			all, _ := mirrors(tool.Input)
			for name := range reflect(all, json.RawMessage(`{"b":"x"}`)) {
				if strings.ContainsAny(name, " \r\n:") {
					t.Errorf("the header %q", name)
				}
			}
			_ = newOutputCheck(tool.Output)
		}
	})
}

// What goes into a header is one line of plain text, and nothing else has the mark.
func FuzzHeaderText(f *testing.F) {
	for _, text := range []string{"", "a", " a", "ü", "a\r\nb: c", "=?base64?YQ==?=", "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := headerText(text)
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				t.Fatalf("%q becomes %q, want from ' ' to '~'", text, got)
			}
		}
		if strings.HasPrefix(got, "=?base64?") == (got == text) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

type encoding struct {
	name string
	as   func(s string) string
}

func units(order binary.AppendByteOrder) func(string) string {
	return func(s string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
}

func runes(order binary.AppendByteOrder) func(string) string {
	return func(s string) string {
		var b []byte
		for _, c := range s {
			b = order.AppendUint32(b, uint32(c))
		}
		return string(b)
	}
}

func quotedMail(s string) string {
	var b strings.Builder
	w := quotedprintable.NewWriter(&b)
	_, _ = io.WriteString(w, strings.Repeat("-", 70)+s)
	_ = w.Close()
	return b.String()
}

func alternate(s string) string {
	b := []byte(s)
	for i, c := range b {
		if i%2 == 0 {
			b[i] = strings.ToUpper(string(rune(c)))[0]
		}
		if c >= 0x80 {
			b[i] = c
		}
	}
	return string(b)
}

// upper changes the case of ASCII alone.
func upper(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, s)
}

// inner are the encodings that count once, next to the value; outer those that may stand on
// them and on one another, two of them.
var inner = func() (all []encoding) {
	for before := range 5 {
		pad := "<~>(="[:before]
		for name, e := range map[string]interface{ EncodeToString([]byte) string }{
			"base64": base64.StdEncoding, "base64, for URLs": base64.RawURLEncoding,
			"base32": base32.StdEncoding, "base32, of hex": base32.HexEncoding, "base32, not padded": base32.StdEncoding.WithPadding(base32.NoPadding),
		} {
			all = append(all, encoding{fmt.Sprintf("%s after %d", name, before), func(s string) string { return e.EncodeToString([]byte(pad + s + pad)) }})
		}
		for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
			all = append(all, encoding{fmt.Sprintf("base64 of UTF-16, %s, after %d", name, before), func(s string) string {
				return base64.StdEncoding.EncodeToString([]byte(pad + units(order)(s) + pad))
			}})
		}
	}
	return append(all,
		encoding{"as it is", func(s string) string { return s }},
		encoding{"hex", func(s string) string { return hex.EncodeToString([]byte(s)) }},
	)
}()

var outer = []encoding{
	{"as it is", func(s string) string { return s }},
	{"capitals", upper},
	{"some capitals", alternate},
	{"a query", url.QueryEscape},
	{"a path", url.PathEscape},
	{"all escaped for URLs", func(s string) string { return every(s, "%%%02X") }},
	{"JSON", jsonOf},
	{"JSON, all escaped", func(s string) string { return everyRune16(s, `\u%04X`) }},
	{"a source", func(s string) string { return every(s, `\x%02x`) }},
	{"HTML", html.EscapeString},
	{"HTML, all escaped", func(s string) string { return everyRune(s, "&#%d;") }},
	{"HTML, in hex, with zeros", func(s string) string { return everyRune(s, "&#X%06X;") }},
	{"HTML, without semicolons", func(s string) string { return everyRune(s, "&#%d") }},
	{"mail", quotedMail},
	{"mail, all escaped", func(s string) string { return every(s, "=%02x") }},
	{"UTF-16LE", units(binary.LittleEndian)}, {"UTF-16BE", units(binary.BigEndian)},
	{"UTF-32LE", runes(binary.LittleEndian)}, {"UTF-32BE", runes(binary.BigEndian)},
	{"lines", func(s string) string { return inLines(s, "\r\n") }},
}

func everyRune16(s, format string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, format, u)
	}
	return b.String()
}

// found checks whether a text, however it is split, has nothing left but the placeholder.
func found(t *testing.T, r *Redactor, how, text string, next func() int) {
	t.Helper()
	var b strings.Builder
	if _, err := io.Copy(&b, r.Reader(&parts{[]byte(text), next})); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if !strings.Contains(got, "{0}") {
		t.Errorf("%s: %q becomes %q, want {0} in it", how, text, got)
	}
	if most := 40 + 2*len(text)/3; !strings.Contains(how, "mail") && len(got) > most {
		t.Errorf("%s: %q becomes %q of %d bytes, want at most %d", how, text, got, len(got), most)
	}
}

// chained are the texts that a value becomes by each chain that is promised.
func chained(value string, yield func(how, text string)) {
	for _, a := range inner {
		for _, b := range outer {
			for _, c := range outer {
				if b.name == "lines" && a.name == "as it is" || c.name == "lines" && (b.name != "as it is" || a.name == "as it is") {
					continue // a value that is broken into lines is not promised, but base64 and the like
				}
				if strings.HasPrefix(b.name, "UTF") && (strings.HasPrefix(c.name, "UTF") || strings.HasPrefix(c.name, "HTML,")) {
					continue // HTML has no zeros
				}
				if b.name == "HTML" && c.name == "some capitals" {
					continue // &Gt; is another character
				}
				yield(a.name+", as "+b.name+", as "+c.name, c.as(b.as(a.as(value))))
			}
		}
	}
}

func TestEachChainOfEncodingsIsFound(t *testing.T) {
	for _, value := range []string{"ghp_0123456789abcdefABCDEF", "p%41\"q\\r/s&t<u> v+w=~?x", "Pa\u00dfw\u00f6rt-\u20ac\u0100\U0001f511-x9"} {
		r := New([]Text{{[]byte(value), "{0}"}})
		chained(value, func(how, text string) {
			if !ascii(value) && !strings.HasSuffix(how, "as as it is") {
				return // what is UTF-16 already is not text that could be changed
			}
			found(t, r, how, text, func() int { return 1 })
		})
		if t.Failed() {
			return
		}
	}
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// FuzzChain has a value in a chain of encodings, between others' bytes, in parts.
func FuzzChain(f *testing.F) {
	f.Add("hunter2-hunter2", "{\"a\":\"", "\"}", uint64(1))
	f.Add("p%41\"q\\r/s&t<u> v+w", "x=", "&y", uint64(9))
	f.Fuzz(func(t *testing.T, value, before, after string, seed uint64) {
		if len(value) < 8 || len(value) > 64 || !printable(value) || len(before) > 500 || len(after) > 500 {
			return
		}
		random := rand.New(rand.NewPCG(seed, 0))
		a, b, c := inner[random.IntN(len(inner))], outer[random.IntN(len(outer)-1)], outer[random.IntN(len(outer)-1)]
		if strings.HasPrefix(b.name, "UTF") && (strings.HasPrefix(c.name, "UTF") || strings.HasPrefix(c.name, "HTML,")) || b.name == "HTML" && c.name == "some capitals" {
			return
		}
		r := New([]Text{{[]byte(value), "{0}"}})
		text := before + "  " + c.as(b.as(a.as(value))) + "  " + after
		got, err := io.ReadAll(r.Reader(&parts{[]byte(text), func() int { return 1 + random.IntN(40) }}))
		switch {
		case err != nil:
			t.Errorf("%q as %s, as %s, as %s: %v", value, a.name, b.name, c.name, err)
		case r.String(text) != string(got):
			t.Errorf("%q as %s, as %s, as %s: r.String(text) = %q, want %q",
				value, a.name, b.name, c.name, r.String(text), string(got))
		case !strings.Contains(string(got), "{0}"):
			t.Errorf(`%q as %s, as %s, as %s: got = %q, want "{0}" in it`,
				value, a.name, b.name, c.name, string(got))
		}
	})
}

// printable tells whether a text is ASCII that can be seen, and not all one character.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) && strings.Trim(s, s[:1]) != ""
}

// What is held back is bounded, whatever stands for nothing.
func TestEscapesWithoutEndTakeNoMemory(t *testing.T) {
	for about, unit := range map[string]string{"zeros": "\x00", "mail's lines": "=\r\n", "lines": "\r\n", "escaped lines": "%0a", "both": "=\n\n", "mail in mail": "=3D\n", "entities": "&#0;"} {
		r := redactor().Reader(&parts{[]byte("hunter2-hunter" + strings.Repeat(unit, 1<<20/len(unit))), func() int { return 1 << 10 }}).(*reader)
		n, err := io.Copy(io.Discard, struct{ io.Reader }{r})
		switch {
		case err != nil:
			t.Errorf("%s: %v", about, err)
		case n < 1<<20-10:
			t.Errorf("%s: n = %v, want at least %v", about, n, 1<<20-10)
		case cap(r.store) > 32<<10:
			t.Errorf("%s: cap(r.store) = %v, want at most %v: %d", about, cap(r.store), 32<<10, n)
		}
	}
}

// A Redactor's memory is stated.
func TestMemoryForAValue(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 8<<10)
	_, _ = random.Read(value)
	text := []byte(base64.StdEncoding.EncodeToString(value))[:8<<10]
	r := New([]Text{{text, "{0}"}})
	if each := float64(len(r.automaton.nodes)*nodeBytes) / float64(len(text)); each > 600 {
		t.Errorf("each byte takes %.0f bytes", each)
	} else {
		t.Logf("each byte takes %.0f bytes", each)
	}
}

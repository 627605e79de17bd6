package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// secrets are values of kinds that people have: the third has all that is escaped.
var secrets = []string{"ghp_0123456789abcdefABCDEF", "hunter2-hunter2", "p%41\"q\\r/s&t<u> v+w=é\n\tz", "0123456789abcdef", strings.Repeat("k", 9)}

func redactor() *Redactor {
	var texts []Text
	for i, s := range secrets {
		texts = append(texts, Text{[]byte(s), fmt.Sprintf("{%d}", i)})
	}
	return New(texts)
}

func jsonOf(s string) string {
	text, _ := json.Marshal(s)
	return string(text[1 : len(text)-1])
}

// every escapes each byte.
func every(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func everyRune(s, format string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func plainJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.Trim(b.String(), "\"\n")
}

// ways are the forms in which a value comes back.
var ways = map[string]func(string) string{
	"as it is":                   func(s string) string { return s },
	"hex":                        func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex in capitals":            func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"a query":                    url.QueryEscape,
	"a path":                     url.PathEscape,
	"all of it escaped":          func(s string) string { return every(s, "%%%02x") },
	"JSON":                       jsonOf,
	"JSON without HTML":          plainJSON,
	"JSON, all escaped":          func(s string) string { return everyRune(s, `\u%04x`) },
	"a source's escapes":         func(s string) string { return every(s, `\x%02X`) },
	"HTML":                       html.EscapeString,
	"HTML, all escaped":          func(s string) string { return everyRune(s, "&#%d;") },
	"HTML, all in hex":           func(s string) string { return everyRune(s, "&#x%x;") },
	"half of it escaped":         func(s string) string { return every(s[:4], "%%%02x") + url.PathEscape(s[4:]) },
	"base64":                     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 after a user":        func(s string) string { return base64.StdEncoding.EncodeToString([]byte("u:" + s)) },
	"base64 after another":       func(s string) string { return base64.URLEncoding.EncodeToString([]byte("u" + s + "?")) },
	"base64 in a query":          func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"base64 in lines":            func(s string) string { return inLines(base64.StdEncoding.EncodeToString([]byte(s+s)), "\r\n") },
	"two base64s after the next": func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte("ab" + s)) },
}

func inLines(s, end string) string {
	var b strings.Builder
	for ; len(s) > 20; s = s[20:] {
		b.WriteString(s[:20] + end)
	}
	return b.String() + s
}

// leaked tells in which form a value is in a text; "": in none.
func leaked(text, value string) string {
	for way, f := range ways {
		if !strings.Contains(way, "base64") && strings.Contains(text, f(value)) {
			return way
		}
	}
	for _, form := range forms([]byte(value)) {
		if strings.Contains(text, string(form)) {
			return "one of the forms"
		}
	}
	return ""
}

func TestAValueComesBackInNoForm(t *testing.T) {
	r := redactor()
	for i, value := range secrets {
		for way, f := range ways {
			for _, around := range [][2]string{{"", ""}, {`{"a":"`, `"}`}, {"x=", "&y=1"}, {"100% ", "%"}, {"\\n", "\\"}, {"\\", ""}, {"&", ";"}, {"a+b\n", "\n\n"}} {
				text := around[0] + f(value) + around[1]
				got := r.String(text)
				if how := leaked(got, value); how != "" {
					t.Errorf("%q as %s: %q gives %q, where it is as %s", value, way, text, got, how)
				}
				if !strings.Contains(got, fmt.Sprintf("{%d}", i)) {
					t.Errorf("%q as %s: %q gives %q", value, way, text, got)
				}
				before := around[0]
				if strings.HasSuffix(before, "\\") && strings.HasPrefix(f(value), "\\") { // two escapes on one another
					before = strings.TrimSuffix(before, "\\")
				}
				if want := fmt.Sprintf("{%d}", i) + around[1]; !strings.Contains(way, "base64") && got != around[0]+want && got != before+want {
					t.Errorf("%q as %s: %q gives %q", value, way, text, got)
				}
			}
		}
	}
}

func TestWhatIsNoneStaysAsItIs(t *testing.T) {
	r := redactor()
	for _, text := range []string{"", "hunter2-hunter", "a%4", "\\u00", "&amp;&#", "\r\n\r\n", "\\ud83d\\ude00 \\ud83d", strings.Repeat("k", 8), "ghp_0123456789abcdeABCDE\n\n"} {
		if got := r.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	var none *Redactor
	switch {
	case New(nil) != nil:
		t.Errorf("an empty Redactor redacts: New(nil) = %v, want nil", New(nil))
	case New([]Text{{}}) != nil:
		t.Errorf("an empty Redactor redacts: New([]Text{{}}) = %v, want nil", New([]Text{{}}))
	case none.String("x") != "x":
		t.Errorf(`an empty Redactor redacts: none.String("x") = %q, want "x"`, none.String("x"))
	}
}

func TestValuesWithinValues(t *testing.T) {
	r := New([]Text{{[]byte("abcdefgh"), "{inner}"}, {[]byte("xxabcdefghyy"), "{outer}"}, {[]byte("efghijkl"), "{next}"}})
	for text, want := range map[string]string{
		"xxabcdefghyy": "{outer}", "xxabcdefghy": "xx{inner}y", "abcdefghijkl!": "{inner}!", "abcdefghabcdefgh": "{inner}{inner}",
		"-xxabcdefghyyabcdefgh-": "-{outer}{inner}-",
	} {
		for n := 1; n <= len(text); n++ {
			if got := inParts(r, text, n); got != want {
				t.Errorf("%q in parts of %d became %q, want %q", text, n, got, want)
			}
		}
	}
}

// inParts reads a text that comes in parts of n bytes.
func inParts(r *Redactor, text string, n int) string {
	got, err := io.ReadAll(r.Reader(&parts{text: []byte(text), next: func() int { return n }}))
	if err != nil {
		return err.Error()
	}
	return string(got)
}

// parts gives a text in parts.
type parts struct {
	text []byte
	next func() int
}

func (p *parts) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(len(p.text), max(1, p.next()))])
	p.text = p.text[n:]
	return n, nil
}

// TestHoweverATextIsSplit composes texts of values, forms, beginnings and escapes.
func TestHoweverATextIsSplit(t *testing.T) {
	r := redactor()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		text := compose(random)
		want := r.String(text)
		checkSplits(t, r, text, want, random)
	}
}

func checkSplits(t *testing.T, r *Redactor, text, want string, random *rand.Rand) {
	t.Helper()
	for _, value := range secrets[:4] {
		if how := leaked(want, value); how != "" && value != secrets[3] {
			t.Fatalf("%q became %q, where %q is as %s", text, want, value, how)
		}
	}
	for _, n := range []int{1, 2, 7, 0} {
		next := func() int { return n }
		if n == 0 {
			next = func() int { return 1 + random.IntN(30) }
		}
		got, err := io.ReadAll(iotest.OneByteReader(r.Reader(&parts{[]byte(text), next})))
		if err != nil {
			t.Fatalf("%q in parts of %d: got error %v, want none", text, n, err)
		}
		if string(got) != want {
			t.Fatalf("%q in parts of %d: got %q, want %q", text, n, string(got), want)
		}
	}
}

func compose(random *rand.Rand) string {
	var b strings.Builder
	names := []string{"as it is", "hex", "a query", "JSON", "HTML", "base64", "all of it escaped", "JSON, all escaped", "base64 in lines"}
	for range 1 + random.IntN(8) {
		value := secrets[random.IntN(len(secrets))]
		form := ways[names[random.IntN(len(names))]](value)
		switch random.IntN(5) {
		case 0, 1:
			b.WriteString(form)
		case 2:
			b.WriteString(form[:random.IntN(len(form))])
		case 3:
			b.WriteString(form[random.IntN(len(form)):])
		default:
			b.WriteString([]string{"%", "\\", "&", "+", "\r", "\n", "\r\n", "x", "%6", "\\u00", "&#", " "}[random.IntN(12)])
		}
	}
	return b.String()
}

func FuzzAnySplitGivesTheSame(f *testing.F) {
	r := redactor()
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(compose(random), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		checkSplits(t, r, text, r.String(text), rand.New(rand.NewPCG(seed, 0)))
	})
}

func TestEventsFlow(t *testing.T) {
	r := redactor()
	in, out := io.Pipe()
	got := r.Reader(in)
	for _, event := range []string{"data: 1\n\n", "data: ghp_hunter\n\n", "data: 100%\n\n", "data: \\\n\n", "data: &\n\n", "data: ghp_0123456789abcdefABC\n\n", "hunter2-hunter2\n\n"} {
		go func() { _, _ = io.WriteString(out, event) }()
		buffer := make([]byte, 100)
		want := strings.NewReplacer("hunter2-hunter2", "{1}", "0123456789abcdef", "{3}").Replace(event)
		n, err := io.ReadAtLeast(got, buffer, len(want)) // it would wait for more for ever
		if err != nil {
			t.Errorf("%q: got error %v, want none", event, err)
		} else if string(buffer[:n]) != want {
			t.Errorf("%q became %q, want %q", event, buffer[:n], want)
		}
	}
}

func TestWhatWasHeldBackIsNotGivenAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	got, err := io.ReadAll(redactor().Reader(io.MultiReader(strings.NewReader("a hunter2-hunter"), iotest.ErrReader(broken))))
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	} else if string(got) != "a " {
		t.Errorf(`got %q, want "a "`, string(got))
	}
}

func TestMatchesWithoutEndTakeNoMemory(t *testing.T) {
	r := redactor().Reader(io.LimitReader(letters1{}, 8<<20)).(*reader)
	got, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("got error %v, want none", err)
	} else if string(got) != "{4}" {
		t.Errorf("got %d bytes, want {4}", len(got))
	}
	if cap(r.store) > 8*longest {
		t.Errorf("%d bytes were held back", cap(r.store))
	}
}

// letters1 is one letter without end.
type letters1 struct{}

func (letters1) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'k'
	}
	return len(p), nil
}

func TestAWordIsNoticedInManyForms(t *testing.T) {
	const word = "paddock-secret-"
	d := NewDetector(word)
	text := word + "NAME"
	for way, f := range ways {
		if way != "base64 in lines" && !d.In("<"+f(text)+">") {
			t.Errorf("as %s: %s", way, f(text))
		}
	}
	for _, form := range []string{"Paddock-Secret-X", "x PADDOCK-SECRET-", every(word, "%c\x00"), every(word, "\x00%c"), "OBQWIZDPMNVS243FMNZGK5BN"} {
		if !d.In(form) {
			t.Errorf("%q is not noticed", form)
		}
	}
	for _, form := range []string{"", "paddock", "paddock secret", "padlock-secret-"} {
		if d.In(form) {
			t.Errorf("%q is noticed", form)
		}
	}
	w := d.Watch()
	if w.Saw([]byte("paddock-%73ec")) {
		t.Error("its first part is noticed, want both parts")
	}
	if !w.Saw([]byte("ret%2d")) {
		t.Error("in two parts it is not noticed")
	}
	w = d.Watch()
	switch {
	case w.Saw([]byte("paddock-")):
		t.Error(`in two texts it is noticed: w.Saw([]byte("paddock-")) = true, want false`)
	case w.End():
		t.Error("in two texts it is noticed: w.End() = true, want false")
	case w.Saw([]byte("secret-")):
		t.Error(`in two texts it is noticed: w.Saw([]byte("secret-")) = true, want false`)
	}
}

func BenchmarkReader(b *testing.B) {
	for name, unit := range map[string]string{"text": "The quick brown fox jumps over the lazy dog 0123456789.\n", "json": `{"name":"value\n","url":"http://x/%41?a=b+c&d=e"},`} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(unit, 1<<20/len(unit))
			r := redactor()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, _ = io.Copy(io.Discard, struct{ io.Reader }{r.Reader(strings.NewReader(text))})
			}
		})
	}
}

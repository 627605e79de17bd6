package textsafe

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatDoesNotShowIsAnEscape(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"text of any language":        {"aä 日本 نص é ❤", "aä 日本 نص é ❤"},
		"escape sequences":            {"\x1b[2J\u009b1m\x7f", `\u001b[2J\u009b1m\u007f`},
		"lines":                       {"a\nb\r\u2028\t", `a\u000ab\u000d\u2028\u0009`},
		"a direction that is turned":  {"a\u202eb\u2066", `a\u202eb\u2066`},
		"characters of no width":      {"a\u200bb\ufeff\u2060", `a\u200bb\ufeff\u2060`},
		"text in tags":                {"a\U000e0041", `a\udb40\udc41`},
		"text in variation selectors": {"a\ufe0e\U000e0101", `a\ufe0e\udb40\udd01`},
		"fillers and blanks":          {"a\u3164\u115f\uffa0\u2800\u00a0", `a\u3164\u115f\uffa0\u2800\u00a0`},
		"nothing to join":             {"a\u034fb\u00ad", `a\u034fb\u00ad`},
		"what is not UTF-8":           {"a\xffb\ufffd", `a\ufffdb` + "\ufffd"},
	} {
		if got := Escape(c.text); got != c.want {
			t.Errorf("%s: %q is shown as %q, want %q", name, c.text, got, c.want)
		}
		if got := string(EscapeBytes([]byte(c.text))); got != c.want {
			t.Errorf("%s: the bytes %q are shown as %q, want %q", name, c.text, got, c.want)
		}
	}
}

func TestAForeignTextFitsIntoALine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\tc":                "a b c",
		" a\u2028\u00a0  b\r\n":  "a b",
		"\x1b[31mred":            "[31mred",
		"\u202eevil\u200b":       "evil",
		"\xff":                   "\ufffd",
		strings.Repeat("ü", 9):   "üüüüüü…",
		strings.Repeat("\t", 99): "…",
		"":                       "",
	} {
		if got := Line(text, 12); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestAForeignTextKeepsItsLines(t *testing.T) {
	text := "\n\r\na\r\n\n\n\u200b\n\tb\u2028c \n\n"
	got, want := Lines(text, 100), []string{"a", "", "    b", "c"}
	if !slices.Equal(got, want) {
		t.Errorf("%q has the lines %q, want %q", text, got, want)
	}
	if got := len(Lines(strings.Repeat("a\n", 500), 1000)); got != maxLines {
		t.Errorf("there are %d lines, want %d", got, maxLines)
	}
}

func TestATextIsQuotedAndMasked(t *testing.T) {
	const text = "a\"\u202e\u3164ä"
	if got, want := Quote(text), `"a\"\u202e\u3164ä"`; got != want {
		t.Errorf("quoted it is %s, want %s", got, want)
	}
	if got, want := Mask(text), `a"??ä`; got != want {
		t.Errorf("masked it is %s, want %s", got, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\u202e\U000e0041")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		shown := Escape(string(text))
		for _, r := range shown {
			if !Visible(r) {
				t.Errorf("%q is shown with %q in it", s, r)
			}
		}
		var back string
		if err := json.Unmarshal([]byte(shown), &back); err != nil || back != s {
			t.Errorf("%q became %q, %v", s, back, err)
		}
	})
}

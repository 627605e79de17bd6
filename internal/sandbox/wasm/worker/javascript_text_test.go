package worker

import "testing"

func TestMalformedUTF8IsReplacedAsTheWebDoes(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"zażółć 🎉":             "zażółć 🎉",
		"a\xffb":               "a\uFFFDb",
		"\xc3":                 "\uFFFD",
		"\xe2\x82":             "\uFFFD",
		"\xe2\x82a":            "\uFFFDa",
		"\xf0\x9f\x8ea":        "\uFFFDa",
		"\xf0\x80\x80\x80":     "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xc0\xaf":             "\uFFFD\uFFFD",
		"x\xed\xa0\xbdy":       "x\uFFFDy", // half of a pair, as the engine writes it
		"\xed\xa0":             "\uFFFD\uFFFD",
		"\xf4\x90\x80\x80":     "\uFFFD\uFFFD\uFFFD\uFFFD",
		"ok\xf1\x80\x80\xe1ok": "ok\uFFFD\uFFFDok",
	} {
		if got := string(validUTF8([]byte(in))); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
		}
	}
}

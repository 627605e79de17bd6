package stub

import "testing"

func TestLiteralsOfASCII(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                      {`""`, `""`},
		"a \"b\" \\ c\n\t\x00":  {`"a \"b\" \\ c\n\x09\x00"`, `"a \"b\" \\ c\n\x09\x00"`},
		"é\u200b€ \\é\\\\U0001": {`"\u00e9\u200b\u20ac \\\u00e9\\\\U0001"`, `"\u00e9\u200b\u20ac \\\u00e9\\\\U0001"`},
		"😀\U000e0041 \\😀":       {`"\U0001f600\U000e0041 \\\U0001f600"`, `"\u{1f600}\u{e0041} \\\u{1f600}"`},
		"\xff":                  {`"\ufffd"`, `"\ufffd"`},
	} {
		if got := PythonLiteral(text); got != want[0] {
			t.Errorf("in Python %q is %s, want %s", text, got, want[0])
		}
		if got := ScriptLiteral(text); got != want[1] {
			t.Errorf("in JavaScript %q is %s, want %s", text, got, want[1])
		}
	}
}

package stub

import (
	"fmt"
	"strings"
)

// PythonLiteral gives s as a string literal of Python, in ASCII characters.
func PythonLiteral(s string) string { return ascii(pythonText(s), `\U%08x`) }

// ScriptLiteral gives s as a string literal of JavaScript and TypeScript, in ASCII
// characters.
func ScriptLiteral(s string) string { return ascii(scriptText(s), `\u{%x}`) }

// ascii escapes what a literal holds beyond ASCII; large is for what \u has no room for.
func ascii(literal, large string) string {
	var b strings.Builder
	for _, r := range literal {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, large, r)
		}
	}
	return b.String()
}

// IsPythonKeyword reports whether Python keeps a name for itself.
func IsPythonKeyword(name string) bool { return keywordsPython[name] }

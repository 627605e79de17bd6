package stub

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"paddock/internal/textsafe"
)

// shown tells whether a character may stand as it is in generated text: it shows,
// and changes nothing about how the rest shows. Of white space that is the space
// alone.
func shown(r rune) bool {
	return r != utf8.RuneError && textsafe.Visible(r)
}

// pythonText gives s as a string literal of Python.
func pythonText(s string) string {
	return literal(s, `\x%02x`, `\U%08x`)
}

// scriptText gives s as a string literal of JavaScript and TypeScript.
func scriptText(s string) string {
	return literal(s, `\x%02x`, `\u{%x}`)
}

func literal(s, small, large string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case shown(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, small, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, large, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// docstring writes lines as one of Python's, with an indent.
func docstring(b *strings.Builder, indent string, lines []string) {
	if len(lines) == 0 {
		return
	}
	escape := strings.NewReplacer(`\`, `\\`)
	quotes := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	b.WriteString(indent + `"""`)
	for i, line := range lines {
		if strings.Contains(line, `"""`) || strings.HasSuffix(line, `"`) {
			line = quotes.Replace(line)
		} else {
			line = escape.Replace(line)
		}
		if i > 0 {
			b.WriteByte('\n')
			if line != "" {
				b.WriteString(indent)
			}
		}
		b.WriteString(line)
	}
	if len(lines) > 1 {
		b.WriteString("\n" + indent)
	}
	b.WriteString("\"\"\"\n")
}

// comment writes lines as a comment of TypeScript, with an indent.
func comment(b *strings.Builder, indent string, lines []string) {
	escape := strings.NewReplacer("*/", `*\/`)
	switch len(lines) {
	case 0:
	case 1:
		b.WriteString(indent + "/** " + escape.Replace(lines[0]) + " */\n")
	default:
		b.WriteString(indent + "/**\n")
		for _, line := range lines {
			b.WriteString(strings.TrimRight(indent+" * "+escape.Replace(line), " ") + "\n")
		}
		b.WriteString(indent + " */\n")
	}
}

package stub

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"paddock/internal/bindings/schema"
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

// prose gives lines of a foreign text that show what they are: no control
// characters, none that have no width or turn the direction, no more than limit
// bytes and maxLines lines.
func prose(s string, limit int) []string {
	s = schema.Cut(s, limit)
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\u0085", "\n", "\t", "    ").Replace(s)
	lines := []string{}
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimRight(clean(line), " ")
		if line == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		if lines = append(lines, line); len(lines) == maxLines {
			break
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

const maxLines = 120

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case shown(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
}

// Line gives the beginning of a foreign text on one line, without characters that
// do not show or that change how others show; limit is in bytes.
func Line(s string, limit int) string { return oneLine(s, limit) }

// Text gives the beginning of a foreign text as [Line] does, on lines of its own.
func Text(s string, limit int) string { return strings.Join(prose(s, limit), "\n") }

// oneLine gives a foreign text on one line.
func oneLine(s string, limit int) string {
	return schema.Cut(strings.Join(strings.Fields(clean(strings.NewReplacer("\n", " ", "\r", " ", "\u2028", " ", "\u2029", " ").Replace(schema.Cut(s, 4*limit)))), " "), limit)
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

package skill

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/bindings/stub"
	"paddock/internal/growth"
)

// lines are shapes of text of which parsers of Markdown, YAML or code could look at a
// part again for each other part.
func shapes() map[string]func(n int) string {
	repeat := func(s string) func(int) string {
		return func(n int) string { return strings.Repeat(s, max(1, n/len(s))) }
	}
	around := func(open, shut string) func(int) string {
		return func(n int) string {
			k := max(1, n/(len(open)+len(shut)))
			return strings.Repeat(open, k) + strings.Repeat(shut, k)
		}
	}
	all := map[string]func(n int) string{
		"nested brackets": around("[", "]"), "nested quotes in a line": repeat("> "), "nested lists in a line": repeat("- "),
		"fences in growing number": func(n int) string {
			var b strings.Builder
			for k := 3; b.Len() < n; k++ {
				b.WriteString(strings.Repeat("`", k) + "py\n")
			}
			return b.String()
		},
		"deeper and deeper lists": func(n int) string {
			var b strings.Builder
			for k := 0; b.Len() < n; k++ {
				b.WriteString(strings.Repeat("  ", k) + "- a\n")
			}
			return b.String()
		},
		"numbered names": func(n int) string {
			var b strings.Builder
			for k := 0; b.Len() < n; k++ {
				fmt.Fprintf(&b, "const a%d = 1\n", k)
			}
			return b.String()
		},
		"enums in one another": func(n int) string {
			return strings.Repeat("enum A { a = enum ", min(n/40, 3000)) + strings.Repeat(" b", n/4)
		},
	}
	for _, s := range []string{"`", "```\n", "```py\n", "````py\n", "~~~js\nx\n~~~\n", "```py\nx\n```\n", "*", "_a ", "![", "[a](", "](", "[a]: b\n", "<", "<a ", "<!--", "<!-- \n", "<?", "<![CDATA[",
		"<div>\n", "\n", " ", "\t", "    a\n", "- a\n", "-\n", "1. a\n", "- a\n\n", "* \n  ", "> a\n", "> > a\n", "a\n", "a\n=\n", "#", "# a\n", "# a {", "|a|b\n|-|-\n", "&", "&amp;", "\\", "a\u200b", "\U000e0041", "\U000e0041 ", "\u202e\n", "\x00",
		"(", "[", "{", "x(", "a=>", "/", "/*", "*/", "<a", "a,", "a<", "\"", "'", "`${", "}", "if(a)", "else ", "\n\n;", "-->", "//\n", "!", "@a ", "export ", "function a(){}\n", "class a{}\n", "import 'a'\n", "enum A{a,", "A[", "\r", "\r\n", "\u2028", ": ", "- - ", "? ", "&a ", "*a ", "!!a ", "{a: ", "|\n", "# ", "--- \n", "async "} {
		all[fmt.Sprintf("%q", s)] = repeat(s)
	}
	return all
}

func TestNoTextOfASkillCostsTheSquareOfItsLength(t *testing.T) {
	for name, shape := range shapes() {
		for language, names := range map[string][]string{"": pythonNames, "in a fence": scriptNames} {
			growth.Check(t, "fences of "+name+" "+language, 512<<10, func(n int) string {
				if language != "" {
					return "`````js\n" + shape(n) + "\n`````\n"
				}
				return shape(n)
			}, func(text string) { fences(text, names) })
		}
		growth.Check(t, "what is hidden in "+name, 512<<10, shape, func(text string) { hiddenIn(text) })
		growth.Check(t, "literals of "+name, 512<<10, shape, func(text string) { stub.ScriptLiteral(text) })
	}
}

func TestNoFrontMatterCostsTheSquareOfItsLength(t *testing.T) {
	for name, shape := range shapes() {
		growth.Check(t, name, maxMatter-100, func(n int) string { return "---\nname: a\ndescription: " + shape(n) + "\n---\nx\n" }, func(text string) { _, _ = check(t, text) })
		growth.Check(t, name, maxMatter-100, func(n int) string { return "---\n" + shape(n) + "\n---\nx\n" }, func(text string) { _, _ = check(t, text) })
	}
}

func TestNoCodeThatIsSavedCostsTheSquareOfItsLength(t *testing.T) {
	for name, shape := range shapes() {
		for _, language := range []string{"python", "javascript"} {
			growth.Check(t, language+" of "+name, maxCode-10, shape, func(code string) {
				folder, err := written("a", language, code, "d", nil)
				if err == nil {
					var s *Skill
					if s, err = Check(folder, "a", true); err == nil {
						s.script()
						s.Modules()
					}
				}
			})
		}
	}
}

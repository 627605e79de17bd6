package typescript

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/growth"
)

func TestNoCodeCostsTheSquareOfItsLength(t *testing.T) {
	shapes := map[string]func(n int) string{
		"enums in one another": func(n int) string {
			return strings.Repeat("enum A{a=", min(n/8, 1200)) + strings.Repeat(" b", n)
		},
	}
	for _, s := range []string{"(", ")", "a ", "a\n", "a\r", "\u2028", "a.", " .a", "/", "/a/ ", "/*", "/**/", "//\n", "-->", "<!--", "`", "`${", "}`", "\"a\" ", "'", "\\", "enum A{a,}", "enum A{", "A[", "a,", "a<", "namespace a.", "else ", "if(a)", ";\n", "a=>", "!", "@a ", "ä", "{a:1},"} {
		shapes[fmt.Sprintf("%q", s)] = func(n int) string { return strings.Repeat(s, n/len(s)+1) }
		shapes[fmt.Sprintf("%q in parentheses", s)] = func(n int) string { return "(" + strings.Repeat(s, n/len(s)+1) }
	}
	for name, shape := range shapes {
		growth.Check(t, name, 1<<20, shape, func(code string) { TooDeep(code) })
	}
}

// Enums that are open in one another cost each word behind them.
func TestEnumsInOneAnotherAreFew(t *testing.T) {
	if TooDeep(strings.Repeat("enum A { a = ", maxOpen+2)) == 0 {
		t.Error("any number of enums may be open")
	}
	if line := TooDeep(strings.Repeat("enum A { a = ", 3) + strings.Repeat("}", 3)); line != 0 {
		t.Errorf("three may not be: %d", line)
	}
}

package packages_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// Of a short source the bundler would make 16 GiB; it ends before that, and the next
// package is made.
func TestSourcesThatGrowWithoutEndAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString("enum E { A0 = '0123456789abcdef',\n")
	for k := range 30 {
		fmt.Fprintf(&text, "A%d = A%d + A%d,\n", k+1, k, k)
	}
	text.WriteString("}\nexport default E.A30;\n")
	r := newRegistry(t)
	r.Add(`{"name":"greedy","version":"1.0.0","main":"index.ts"}`, file{Name: "package/index.ts", Text: text.String()})
	r.Add(`{"name":"modest","version":"1.0.0"}`, index0)
	if _, _, err := install(t, r, "greedy"); err == nil || err.Kind != fault.Unsupported || !strings.Contains(err.Error(), "did not come to its end") {
		t.Errorf("it ends with %v", err)
	}
	if _, _, err := install(t, r, "modest"); err != nil {
		t.Errorf("another one: %v", err)
	}
}

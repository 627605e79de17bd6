package pkgproxy_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// TypeScript, of whose constants a compiler makes 16 GiB, is not read: Node runs none below
// node_modules. Sources that nest without end take their own process with them, and the
// refusal names the package among those that are made at once.
func TestSourcesThatGrowWithoutEndAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString("enum E { A0 = '0123456789abcdef',\n")
	for k := range 30 {
		fmt.Fprintf(&text, "A%d = A%d + A%d,\n", k+1, k, k)
	}
	text.WriteString("}\nexport default E.A30;\n")
	r := newRegistry(t)
	r.Add(`{"name":"greedy","version":"1.0.0","main":"index.ts"}`, file{Name: "package/index.ts", Text: text.String()})
	r.Add(`{"name":"deep","version":"1.0.0","type":"module"}`, file{Name: "package/index.js", Text: "export default " + strings.Repeat("[", 4<<20)})
	r.Add(`{"name":"modest","version":"1.0.0"}`, index0)
	if _, _, err := install(t, r, "greedy"); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if _, _, err := install(t, r, "modest", "deep"); err != nil && (err.Kind != fault.Unsupported || !strings.Contains(err.Error(), "deep@1.0.0")) {
		t.Errorf("nested without end: %v", err)
	}
	if _, _, err := install(t, r, "modest"); err != nil {
		t.Errorf("another one: %v", err)
	}
}

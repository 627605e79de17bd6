package stub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"paddock/internal/bindings"
	"paddock/internal/growth"
)

func TestToolsCostNoSquareOfTheirNumber(t *testing.T) {
	for name, tool := range map[string]func(k int) string{
		"names that come to one identifier": func(k int) string {
			return "a" + strings.Repeat("!", k%50+1) + strings.Repeat("?", k/50%50+1) + strings.Repeat(".", k/2500+1)
		},
		"names that are different": func(k int) string { return fmt.Sprintf("tool_%d", k) },
		"names that have one type": func(k int) string {
			var b strings.Builder
			for bit := range 14 {
				b.WriteByte('a')
				if k>>bit&1 == 1 {
					b.WriteByte('_')
				}
			}
			return b.String()
		},
	} {
		growth.Check(t, name, maxTools, func(n int) []bindings.Tool {
			all := make([]bindings.Tool, n)
			for k := range all {
				all[k] = bindings.Tool{Name: tool(k), Input: json.RawMessage(`{"type":"object"}`)}
			}
			return all
		}, func(all []bindings.Tool) { Names(all) })
	}
}

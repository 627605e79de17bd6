package stub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"paddock/internal/bindings"
)

// alike are tools whose names all come to one identifier.
func alike(n int) []bindings.Tool {
	tools := make([]bindings.Tool, n)
	for i := range tools {
		digits := strings.NewReplacer("0", "!", "1", "?", "2", "#", "3", "%", "4", "&", "5", "*", "6", "+", "7", ",", "8", ";", "9", "=")
		tools[i] = bindings.Tool{Name: "a" + digits.Replace(fmt.Sprint(i))}
	}
	return tools
}

// A server may give thousands of tools names that come to one identifier: that takes time
// in proportion to their number.
func TestNamesThatAreAlikeTakeNoLonger(t *testing.T) {
	took := func(n int) time.Duration {
		best := time.Hour
		for range 3 {
			begin := time.Now()
			all := Names(alike(n))
			best = min(best, time.Since(begin))
			known := map[string]bool{}
			for _, one := range all {
				known[one.Python] = true
			}
			if len(known) != n {
				t.Fatalf("%d tools have %d names", n, len(known))
			}
		}
		return best
	}
	if small, large := took(maxTools/8), took(maxTools); large > 30*small {
		t.Errorf("8 times as many take %v instead of %v", large, small)
	}
}

package growth_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/growth"
)

// recorder keeps what a check complains of.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestWorkThatGrowsWithTheSquareIsFound(t *testing.T) {
	sink := 0
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		work func(string)
		size int
		bad  bool
	}{
		"one pass":             {func(s string) { sink += strings.Count(s, "xy") + strings.Count(strings.ToUpper(s), "Z") }, 16 << 20, false},
		"too little to matter": {func(s string) { sink += len(s) * len(s) }, 1000, false},
		"a pass for each": {func(s string) {
			for k := range s {
				for _, c := range []byte(s[:k]) {
					sink += int(c)
				}
			}
		}, 40_000, true},
	} {
		r := &recorder{TB: t}
		growth.Check(r, name, c.size, text, c.work)
		if bad := len(r.said) > 0; bad != c.bad {
			t.Errorf("%s: %v", name, r.said)
		}
	}
}

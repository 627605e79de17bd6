package upstream

import (
	"strings"
	"testing"

	"paddock/internal/growth"
)

func TestEventsCostNoSquareOfTheirLength(t *testing.T) {
	for _, line := range []string{"\r", "\n", "\r\n", ":\r", "data\n", "data:\r", "data: x\n\n", "event:a\r\r", "id:1\n"} {
		growth.Check(t, line, 4<<20, func(n int) string { return strings.Repeat(line, n/len(line)) }, func(text string) {
			next := events(strings.NewReader(text), 8<<20)
			for {
				if _, err := next(); err != nil {
					return
				}
			}
		})
	}
}

// A buffer may hold thousands of lines: each is looked at once, whatever it ends in.
func TestALineThatEndsInACarriageReturnCostsNoMoreThanAnother(t *testing.T) {
	growth.Check(t, "16 KiB at once", 16<<10, func(n int) int { return n }, func(size int) {
		for range 200 {
			next := events(strings.NewReader(strings.Repeat("\r", size)), 1<<20)
			for {
				if _, err := next(); err != nil {
					break
				}
			}
		}
	})
}

package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATableFitsItsTerminal(t *testing.T) {
	rows := [][]string{
		{"ID", "NAME", "PATH"},
		{"s-abcdefghijklmnopqrstuvwxyz", "short", strings.Repeat("long/", 40)},
		{strings.Repeat("a text of its own ", 10)},
		{},
	}
	for _, width := range []int{40, 60, 300} {
		for i, r := range fit(rows, width) {
			sum := columnGap * (len(rows[0]) - 1)
			for _, cell := range r {
				sum += utf8.RuneCountInString(cell)
			}
			if len(r) == 1 {
				sum = utf8.RuneCountInString(r[0])
			}
			if sum > width {
				t.Errorf("in %d columns row %d takes %d: %q", width, i, sum, r)
			}
		}
	}
	if got := fit(rows, 300)[1][0]; got != rows[1][0] {
		t.Errorf("with room for it the id is %q", got)
	}
	if got := fit(rows, 60)[1]; !strings.HasSuffix(got[2], "…") || got[1] != "short" {
		t.Errorf("the widest column is to be cut: %q", got)
	}
	if got := fit(rows, 3)[1][1]; got != "short" {
		t.Errorf("a narrow column was cut to %q", got)
	}
}

package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/growth"
)

func TestFoldersInOneAnotherCostNoSquareOfTheirNumber(t *testing.T) {
	tree, _ := open(t, 1<<30)
	made := 0
	growth.Check(t, "a file below new folders", 1900, func(n int) string {
		made++
		return fmt.Sprintf("%d/", made) + strings.Repeat("d/", n)
	}, func(dir string) {
		made++
		if _, err := tree.Put(fmt.Sprintf("%s%d/f", dir, made), strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
	})
}

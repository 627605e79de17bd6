package wasm_test

import (
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// cell is one program and what has to come of it.
type cell = sandboxtest.Cell

func TestJavaScriptPrograms(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for set, programs := range map[string]map[string][]cell{"everywhere": sandboxtest.JavaScriptPrograms, "here": javascriptPrograms} {
		for name, cells := range programs {
			t.Run(set+"/"+name, func(t *testing.T) {
				in := startIn(t, b, "javascript", folder(t, owners, "o/"+set+"_"+strings.ReplaceAll(name, " ", "_")))
				for _, c := range cells {
					c.Check(t, in)
				}
			})
		}
	}
}

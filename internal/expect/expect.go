// Package expect has the checks that most tests need: each says what was wanted and what
// came, and the test goes on.
package expect

import (
	"strings"
	"testing"
)

// Equal fails the test if one thing is not what it has to be.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Part fails the test if a text lacks a part.
func Part(t testing.TB, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s: got %s, want %q in it", what, text, part)
	}
}

// NoPart fails the test if a text has a part.
func NoPart(t testing.TB, what, text, part string) {
	t.Helper()
	if strings.Contains(text, part) {
		t.Errorf("%s: got %s, want no %q in it", what, text, part)
	}
}

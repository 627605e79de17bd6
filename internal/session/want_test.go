package session_test

import (
	"strings"
	"testing"
)

// wantEqual fails the test if one thing is not what it has to be.
func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantPart fails the test if a text lacks a part.
func wantPart(t *testing.T, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s: got %s, want %q in it", what, text, part)
	}
}

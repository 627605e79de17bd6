//go:build unix

package auth

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// TestRootMakesNothingInTheFolderOfAnother: its owner could not read it, and
// would let no client in.
func TestRootMakesNothingInTheFolderOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives folders away")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	_, _, err := OpenTokens(dir).Create(Token{Name: "laptop"})
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("a token: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if !strings.Contains(err.Error(), "4321") {
		t.Errorf(`a token: got error %q, want "4321" in it`, err.Error())
	}
	if _, _, err := LocalToken(dir); fault.KindOf(err) != fault.Denied {
		t.Errorf("the local token: %v", err)
	}
	if made, err := filepath.Glob(filepath.Join(dir, "*")); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(made) > 0 {
		t.Errorf("got %q, want none", made)
	}
}

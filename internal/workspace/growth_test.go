package workspace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/growth"
)

func TestNothingIsWrittenDeeperThanIsKept(t *testing.T) {
	tree, _ := open(t, 1<<30)
	deep := strings.Repeat("d/", 199) + "f"
	if _, err := tree.Write(deep, nil); err != nil {
		t.Error(err)
	}
	var f *fault.Error
	if _, err := tree.Write("d/"+deep, nil); !errors.As(err, &f) {
		t.Errorf("deeper: got %v, want an error of another type", err)
	} else if f.Kind != fault.Invalid {
		t.Errorf("deeper: f.Kind: got %v, want %v", f.Kind, fault.Invalid)
	}
}

func keepNone(string, io.Reader) (blob.Ref, error) { return blob.Ref{}, nil }

func TestWhatChangedInADeepFolderCostsNoSquareOfItsDepth(t *testing.T) {
	tree, dir := open(t, 1<<30)
	listing, _, err := tree.Capture(nil, keepNone)
	if err != nil {
		t.Fatal(err)
	}
	growth.Check(t, "a file in deep folders", 1900, func(n int) string {
		p := strings.Repeat("d/", n)
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil { // as a program does
			t.Fatal(err)
		}
		return p + "f"
	}, func(p string) {
		for range 10 {
			if _, _, err := tree.CapturePaths(listing, []string{p}, keepNone); err != nil {
				t.Fatal(err)
			}
		}
	})
}

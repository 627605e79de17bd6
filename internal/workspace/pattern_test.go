package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/membudget"
	"paddock/internal/workspace"
)

// Seventeen bytes of a request for each byte of the file ended the server: memory
// that runs out is fatal in Go.
func TestAnEditThatMultipliesIsRefusedBeforeItIsMade(t *testing.T) {
	tree, dir := open(t, 1<<30)
	for name, c := range map[string]struct{ text, old, new string }{
		"a character by a long text":    {strings.Repeat("a", 16<<20), "a", strings.Repeat("b", 1<<20)},
		"lines that become longer ones": {strings.Repeat("a\r\n", 5<<20), "a\n", strings.Repeat("\n", 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, dir, "f", c.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n, err := tree.Edit("f", c.old, c.new, true)
			runtime.ReadMemStats(&after)
			wantKind(t, err, fault.Exhausted)
			if n != 0 {
				t.Errorf("replaced %d", n)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "f")); string(got) != c.text {
				t.Error("the file is another one")
			}
		})
	}
	t.Run("what stays within the bound is made", func(t *testing.T) {
		put(t, dir, "f", strings.Repeat("a", 1<<10))
		if n, err := tree.Edit("f", "a", strings.Repeat("b", 16<<10), true); err != nil {
			t.Error(err)
		} else if n != 1<<10 {
			t.Errorf("n: got %v, want %v", n, 1<<10)
		}
		put(t, dir, "f", strings.Repeat("a", 1<<10)+"b")
		_, err := tree.Edit("f", "a", strings.Repeat("b", 16<<10), true)
		wantKind(t, err, fault.Exhausted)
	})
}

func TestACostlySearchEnds(t *testing.T) {
	tree, dir := open(t, 1<<30)
	put(t, dir, "f", strings.Repeat("a", 1<<20))
	t.Run("before it begins, where the expression is too large", func(t *testing.T) {
		_, err := tree.Search(t.Context(), "(?:"+strings.Repeat("a?b|", 190)+"c){1000}", "", 0)
		wantKind(t, err, fault.Invalid)
	})
	t.Run("with its context, in the middle of a line", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := &cancels{Context: ctx, after: 20, cancel: cancel}
		_, err := tree.Search(begun, "(?:a?){900}(?:a?){900}b", "", 0)
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("with its steps", func(t *testing.T) {
		put(t, dir, "f", strings.Repeat("b", 15<<20)) // each costs little, and there are many
		_, err := tree.Search(t.Context(), "^a{900}", "", 0)
		wantKind(t, err, "")
		_, err = tree.Search(t.Context(), "(?:^c{900}|d)b?", "", 0)
		wantKind(t, err, fault.Exhausted)
	})
}

// cancels ends when it was asked often enough whether it has ended.
type cancels struct {
	context.Context
	after  int
	cancel context.CancelFunc
}

func (c *cancels) Err() error {
	if c.after--; c.after == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

func TestAListingEndsWithItsContext(t *testing.T) {
	tree, dir := open(t, 1<<30)
	for k := range 200 {
		put(t, dir, fmt.Sprintf("d/%03d", k), "x")
	}
	for name, list := range map[string]func(context.Context) error{
		"of files": func(ctx context.Context) error { _, _, err := tree.List(ctx, "d/*"); return err },
		"of all": func(ctx context.Context) error {
			_, err := tree.Walk(ctx, "no/such", func(workspace.File) error { return nil })
			return err
		},
		"of a search": func(ctx context.Context) error { _, err := tree.Search(ctx, "y", "", 0); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if err := list(&cancels{Context: ctx, after: 100, cancel: cancel}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASearchHoldsTheFilesThatItReads(t *testing.T) {
	tree, _ := open(t, 1<<30)
	if _, err := tree.Write("large.txt", bytes.Repeat([]byte("a line\n"), 1<<18)); err != nil {
		t.Fatal(err)
	}
	b := membudget.New(1<<20, 1<<20)
	ctx, end := b.Scope(t.Context(), "ann")
	defer end()
	if _, err := tree.Search(ctx, "line", "", 0); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("a file that there is no memory for: %v", err)
	}
	ctx, end = membudget.New(8<<20, 8<<20).Scope(t.Context(), "ann")
	defer end()
	if got, err := tree.Search(ctx, "line", "", 0); err != nil {
		t.Errorf("one that there is some for: got error %v, want none", err)
	} else if len(got.Matches) == 0 {
		t.Error("one that there is some for: len(got.Matches): got 0, want more")
	}
}

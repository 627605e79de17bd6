package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/history"
)

// waits makes a checkpoint in the middle of a run.
func (b *bench) waits(execution, state, content string) {
	b.t.Helper()
	var whole []bool
	b.keep(checkpoint.Note{
		Cause: history.CauseExecute, Content: []byte(content),
		Waiting: &history.Waiting{Execution: execution, Runtime: "python", Since: time.Now(), Reasons: []string{"ap-1"}},
	}, map[string]checkpoint.Snapshot{"python": says(state, &whole)})
}

func (b *bench) wantContent(want string) {
	b.t.Helper()
	if data, err := b.Content(); string(data) != want || err != nil {
		b.t.Errorf("it waits with %q, %v; want %q", data, err, want)
	}
}

func TestARunWaitsUntilItIsGoneOnWithOrGivenUp(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	if err := errors.Join(b.GoOn(t.Context()), b.Abandon(t.Context())); err != nil || b.Head().Number != 1 {
		t.Errorf("where nothing waits the head is %+v, %v", b.Head(), err)
	}
	b.waits("x-1", "1", "content")
	step := b.Head().Number
	b.write("f", "meanwhile")
	if err := b.CommitPaths(t.Context(), []string{"f"}); err != nil {
		t.Fatal(err)
	}
	if w := b.Head().Waits(); w == nil || w.Execution != "x-1" || w.Since.IsZero() || b.Count() != step+1 {
		t.Fatalf("it waits: %+v", b.Head())
	}
	b.wantContent("content")
	if !slices.Contains(slices.Collect(b.Head().Refs()), b.Head().Waiting.Content) || slices.Contains(slices.Collect(b.Head().Needs()), b.Head().Waiting.Content) {
		t.Error("what it waits with would be collected, or is needed for the rest")
	}
	if err := b.GoOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := b.Head(); h.Waits() != nil || h.Waiting == nil || h.Of != step+1 || h.Previous != step || b.Count() != step+1 {
		t.Errorf("going on is a step: %+v", h)
	}
	b.keep(checkpoint.Note{Cause: history.CauseExecute, Over: true}, nil)
	if h := b.Head(); h.Waiting != nil {
		t.Errorf("when it is over there is %+v", h.Waiting)
	}
	b.waits("x-2", "2", "more")
	if err := b.Abandon(t.Context()); err != nil || b.Head().Waiting != nil {
		t.Errorf("given up, there is %+v, %v", b.Head().Waiting, err)
	}
	b.waits("x-3", "3", "more")
	if back, err := b.Find(strconv.FormatInt(step, 10)); err != nil || back.Waiting == nil {
		t.Fatalf("%+v, %v", back, err)
	} else if _, err := b.RestoreTo(t.Context(), back, nil); err != nil || b.Head().Waiting != nil {
		t.Errorf("gone back to where it waited it is %+v, %v", b.Head().Waiting, err)
	}
}

func TestWhoOpensItNextKnowsWhetherARunWaits(t *testing.T) {
	for name, c := range map[string]struct {
		do          func(b *bench)
		clean, anew bool
		waits       string
	}{
		"after a kill":                        {do: func(*bench) {}, waits: "x-1"},
		"after it was let go of":              {do: func(*bench) {}, clean: true, waits: "x-1"},
		"when it was gone on with":            {do: func(b *bench) { _ = b.GoOn(b.t.Context()) }, anew: true},
		"when it was so, and let go of":       {do: func(b *bench) { _ = b.GoOn(b.t.Context()) }, clean: true, anew: true},
		"when it was given up":                {do: func(b *bench) { _ = b.Abandon(b.t.Context()) }, anew: true},
		"when files were written before that": {do: func(b *bench) { b.write("f", "cut short") }, waits: "x-1"},
		"when what came after it is damaged": {do: func(b *bench) {
			_ = b.GoOn(b.t.Context())
			path := filepath.Join(b.config.Folder, strconv.FormatInt(b.Head().Number, 10))
			if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
				b.t.Fatal(err)
			}
		}, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.step("one", "")
			b.waits("x-1", "1", "content")
			c.do(b)
			again := b.open(func(c *checkpoint.Config) { c.Moved = func() {} })
			_, _, err := again.OpenHead(b.Head().Number)
			if err == nil {
				_, _, err = again.Recover(t.Context(), c.clean)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if w := again.Head().Waits(); w != nil {
				got = w.Execution
			}
			r := again.Resume("python")
			if got != c.waits || r == nil || r.Reseed != c.anew || again.Head().Of != 2 {
				t.Errorf("%q waits, want %q; what it held is %+v, new: %v; it is at %+v", got, c.waits, r, c.anew, again.Head())
			}
			if w := again.Head().Waiting; got == "" && w != nil {
				t.Errorf("it is in the middle of %+v", w)
			}
		})
	}
}

// Without what is needed to go on the session is there all the same.
func TestWhatARunNeedsToGoOnMayBeMissing(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	b.waits("x-1", "1", "content")
	b.remove(b.Head().Waiting.Content)
	again := b.open(func(c *checkpoint.Config) { c.Moved = func() {} })
	if skipped, _, err := again.OpenHead(2); skipped != nil || err != nil || again.Head().Number != 2 {
		t.Fatalf("%+v, %v, %v", again.Head(), skipped, err)
	}
	if _, err := again.Content(); !errors.Is(err, blob.ErrMissing) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is missing is read: %v", err)
	}
}

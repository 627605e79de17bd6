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
	if data, err := b.Content(); err != nil {
		b.t.Error(err)
	} else if string(data) != want {
		b.t.Errorf("b.Content(): got %q, want %q", string(data), want)
	}
}

func TestARunWaitsUntilItIsGoneOnWithOrGivenUp(t *testing.T) {
	b := newBench(t)
	b.step("one", "")
	if err := errors.Join(b.GoOn(t.Context()), b.Abandon(t.Context())); err != nil {
		t.Errorf("where nothing waits the head: got error %v, want none", err)
	} else if b.Head().Number != 1 {
		t.Errorf("where nothing waits the head: b.Head().Number: got %v, want 1", b.Head().Number)
	}
	b.waits("x-1", "1", "content")
	step := b.Head().Number
	b.write("f", "meanwhile")
	if err := b.CommitPaths(t.Context(), []string{"f"}); err != nil {
		t.Fatal(err)
	}
	switch w := b.Head().Waits(); {
	case w == nil:
		t.Fatalf("it waits: w is nil, want a value: %+v", b.Head())
	case w.Execution != "x-1":
		t.Fatalf(`it waits: w.Execution = %q, want "x-1"`, w.Execution)
	case w.Since.IsZero():
		t.Fatalf("it waits: w.Since.IsZero() = true, want false: %+v", b.Head())
	case b.Count() != step+1:
		t.Fatalf("it waits: b.Count() = %v, want %v: %+v", b.Count(), step+1, b.Head())
	}
	b.wantContent("content")
	if !slices.Contains(slices.Collect(b.Head().Refs()), b.Head().Waiting.Content) {
		t.Errorf("the references, which keep it: got %v, want %v among them",
			slices.Collect(b.Head().Refs()), b.Head().Waiting.Content)
	}
	if slices.Contains(slices.Collect(b.Head().Needs()), b.Head().Waiting.Content) {
		t.Errorf("what the rest needs: got %v, want no %v among them",
			slices.Collect(b.Head().Needs()), b.Head().Waiting.Content)
	}
	if err := b.GoOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	switch h := b.Head(); {
	case h.Waits() != nil:
		t.Errorf("going on is a step: h.Waits() = %v, want nil: %+v", h.Waits(), h)
	case h.Waiting == nil:
		t.Errorf("going on is a step: h.Waiting is nil, want a value: %+v", h)
	case h.Of != step+1:
		t.Errorf("going on is a step: h.Of = %v, want %v: %+v", h.Of, step+1, h)
	case h.Previous != step:
		t.Errorf("going on is a step: h.Previous = %v, want %v: %+v", h.Previous, step, h)
	case b.Count() != step+1:
		t.Errorf("going on is a step: b.Count() = %v, want %v: %+v", b.Count(), step+1, h)
	}
	b.keep(checkpoint.Note{Cause: history.CauseExecute, Over: true}, nil)
	if h := b.Head(); h.Waiting != nil {
		t.Errorf("when it is over there is %+v", h.Waiting)
	}
	b.waits("x-2", "2", "more")
	if err := b.Abandon(t.Context()); err != nil {
		t.Errorf("given up: got error %v, want none", err)
	} else if b.Head().Waiting != nil {
		t.Errorf("given up: b.Head().Waiting: got %+v, want nil", b.Head().Waiting)
	}
	b.waits("x-3", "3", "more")
	back, err := b.Find(strconv.FormatInt(step, 10))
	if err != nil {
		t.Fatal(err)
	}
	if back.Waiting == nil {
		t.Fatalf("the checkpoint at which it waited: got %+v, want one that waits", back)
	}
	if _, err := b.RestoreTo(t.Context(), back, nil); err != nil {
		t.Errorf("going back to where it waited: got error %v, want none", err)
	} else if b.Head().Waiting != nil {
		t.Errorf("what waits after going back to it: got %+v, want nil", b.Head().Waiting)
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
			switch {
			case got != c.waits:
				t.Errorf("got = %v, want %v; %q waits, want %q; what it held is %+v, new: %v; it is at %+v",
					got, c.waits, got, c.waits, r, c.anew, again.Head())
			case r == nil:
				t.Errorf("r is nil, want a value; %q waits, want %q; what it held is %+v, new: %v; it is at %+v",
					got, c.waits, r, c.anew, again.Head())
			case r.Reseed != c.anew:
				t.Errorf("r.Reseed = %v, want %v; %q waits, want %q; what it held is %+v, new: %v; it is at %+v",
					r.Reseed, c.anew, got, c.waits, r, c.anew, again.Head())
			case again.Head().Of != 2:
				t.Errorf("again.Head().Of = %v, want 2; %q waits, want %q; what it held is %+v, new: %v; it is at %+v",
					again.Head().Of, got, c.waits, r, c.anew, again.Head())
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
	switch skipped, _, err := again.OpenHead(2); {
	case err != nil:
		t.Fatal(err)
	case skipped != nil:
		t.Fatalf("skipped = %v, want nil: %+v", skipped, again.Head())
	case again.Head().Number != 2:
		t.Fatalf("again.Head().Number = %v, want 2: %+v, %v",
			again.Head().Number, again.Head(), skipped)
	}
	if _, err := again.Content(); !errors.Is(err, blob.ErrMissing) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is missing is read: %v", err)
	}
}

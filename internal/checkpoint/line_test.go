package checkpoint_test

import (
	"errors"
	"strconv"
	"testing"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
)

// The oldest goes first, but for those with a label, where the session is, and where
// undo leads.
func TestCheckpointsAreGivenUpFromTheOldestOn(t *testing.T) {
	b := newBench(t)
	for n := range 6 {
		label := ""
		if n == 1 {
			label = "stays"
		}
		b.step(strconv.Itoa(n), label)
	}
	b.Prune(2)
	switch got := b.numbers(); {
	case len(got) != 3:
		t.Errorf("len(got) = %d, want 3: %+v", len(got), got)
	case got[0] != 2:
		t.Errorf("got[0] = %v, want 2: %v, %d", got[0], got, b.litter)
	case got[1] != 5:
		t.Errorf("got[1] = %v, want 5: %v, %d", got[1], got, b.litter)
	case got[2] != 6:
		t.Errorf("got[2] = %v, want 6: %v, %d", got[2], got, b.litter)
	case b.litter != 3:
		t.Errorf("b.litter = %v, want 3: %v", b.litter, got)
	}
	if b.Labels() != 1 {
		t.Errorf("%d have a label", b.Labels())
	}
	b.config.Most = 2
	again := b.open(nil)
	if err := again.Check(); err != nil {
		t.Fatal(err)
	}
	switch done, err := again.Unlabel("stays"); {
	case err != nil:
		t.Errorf("it took the label off: %v", err)
	case len(done) != 1:
		t.Errorf("it took the label off: len(done) = %d, want 1: %+v", len(done), done)
	case done[0] != 2:
		t.Errorf("it took the label off: done[0] = %v, want 2: %v", done[0], done)
	}
	if again.Count() != 2 {
		t.Errorf("again.Count(): got %v, want 2", again.Count())
	}
	if again.Labels() != 0 {
		t.Errorf("again.Labels(): got %v, want 0", again.Labels())
	}
	b.Prune(0)
	if h, err := b.Previous(); err != nil {
		t.Errorf("undo: got error %v, want none", err)
	} else if h.Number != 5 {
		t.Errorf("undo: h.Number: got %v, want 5", h.Number)
	}
}

func TestALabelThatWasTakenOffIsNowhere(t *testing.T) {
	b := newBench(t)
	b.step("one", "twice")
	b.step("two", "twice")
	if _, err := b.Unlabel("none"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a label that there is not is %v", err)
	}
	if done, err := b.Unlabel("1"); err != nil {
		t.Errorf("by its number it was taken off: got error %v, want none", err)
	} else if len(done) != 1 {
		t.Errorf("by its number it was taken off: len(done): got %d, want 1: %v", len(done), done)
	}
	if found, err := b.Find("twice"); err != nil {
		t.Error(err)
	} else if found.Number != 2 {
		t.Errorf("found.Number: got %v, want 2", found.Number)
	}
	switch steps, err := b.History(); {
	case err != nil:
		t.Error(err)
	case steps[0].Label != "":
		t.Errorf(`steps[0].Label = %q, want ""`, steps[0].Label)
	case steps[1].Label != "twice":
		t.Errorf(`steps[1].Label = %q, want "twice"`, steps[1].Label)
	}
}

func TestACheckpointOfAnotherSessionIsNone(t *testing.T) {
	b := newBench(t)
	b.step("one", "l")
	other := b.open(func(c *checkpoint.Config) { c.Session = "other" })
	switch skipped, _, err := other.OpenHead(0); {
	case err != nil:
		t.Error(err)
	case !errors.Is(skipped, history.ErrDamaged):
		t.Errorf("error %v, want %v", skipped, history.ErrDamaged)
	case other.Head().Number != 0:
		t.Errorf("other.Head().Number = %v, want 0: %+v, %v",
			other.Head().Number, other.Head(), skipped)
	}
	for _, name := range []string{"1", "l"} {
		if _, err := other.Find(name); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%q is %v", name, err)
		}
	}
	if err := other.Verify(b.Head()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it can be gone back to: %v", err)
	}
}

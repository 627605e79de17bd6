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
	if got := b.numbers(); len(got) != 3 || got[0] != 2 || got[1] != 5 || got[2] != 6 || b.litter != 3 {
		t.Errorf("there are %v; it was told of %d", got, b.litter)
	}
	if b.Labels() != 1 {
		t.Errorf("%d have a label", b.Labels())
	}
	b.config.Most = 2
	again := b.open(nil)
	if err := again.Check(); err != nil {
		t.Fatal(err)
	}
	if done, err := again.Unlabel("stays"); len(done) != 1 || done[0] != 2 || err != nil {
		t.Errorf("it took the label off %v, %v", done, err)
	}
	if again.Count() != 2 || again.Labels() != 0 {
		t.Errorf("what has no label any more is among %d", again.Count())
	}
	b.Prune(0)
	if h, err := b.Previous(); err != nil || h.Number != 5 {
		t.Errorf("undo leads to %+v, %v", h, err)
	}
}

func TestALabelThatWasTakenOffIsNowhere(t *testing.T) {
	b := newBench(t)
	b.step("one", "twice")
	b.step("two", "twice")
	if _, err := b.Unlabel("none"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a label that there is not is %v", err)
	}
	if done, err := b.Unlabel("1"); len(done) != 1 || err != nil {
		t.Errorf("by its number it was taken off %v, %v", done, err)
	}
	if found, err := b.Find("twice"); err != nil || found.Number != 2 {
		t.Errorf("it is found at %+v, %v", found, err)
	}
	if steps, err := b.History(); err != nil || steps[0].Label != "" || steps[1].Label != "twice" {
		t.Errorf("there are %+v, %v", steps, err)
	}
}

func TestACheckpointOfAnotherSessionIsNone(t *testing.T) {
	b := newBench(t)
	b.step("one", "l")
	other := b.open(func(c *checkpoint.Config) { c.Session = "other" })
	if skipped, _, err := other.OpenHead(0); !errors.Is(skipped, history.ErrDamaged) || err != nil || other.Head().Number != 0 {
		t.Errorf("it is at %+v: %v, %v", other.Head(), skipped, err)
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

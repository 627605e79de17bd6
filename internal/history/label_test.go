package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"paddock/internal/blob/blobtest"
)

func TestALabelIsTakenOffForGood(t *testing.T) {
	dir := t.TempDir()
	l := filled(t, dir, 3)
	for range 2 { // the second time it has none
		if err := l.Unlabel(3); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Unlabel(77); err != nil {
		t.Error(err)
	}
	for name, l := range map[string]*Line{"the line": l, "the folder": open(t, dir)} {
		m, err := l.Get(3)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case m.Number != 3:
			t.Errorf("%s: m.Number = %v, want 3: %+v, %+v", name, m.Number, m, l)
		case l.Labelled(3):
			t.Errorf("%s: l.Labelled(3) = true, want false: %+v, %+v", name, m, l)
		case l.Labels() != 0:
			t.Errorf("%s: l.Labels() = %v, want 0: %+v, %+v", name, l.Labels(), m, l)
		case !slices.Equal(l.Numbers(), []int64{1, 2, 3}):
			t.Errorf("%s: l.Numbers() = %v, want %v: %+v, %+v",
				name, l.Numbers(), []int64{1, 2, 3}, m, l)
		}
	}
	if err := l.Remove(3); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("there are left %v, %v", left, err)
	}
}

// Whatever fails, and if power fails then, the checkpoint is there, once.
func TestNoCheckpointIsLostForItsLabel(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for name, fails := range map[string]error{"an error": syscall.EIO, "an error after it was done": blobtest.Torn{Err: syscall.EIO}, "none": nil} {
		for n := range 3 {
			for _, cut := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s at operation %d, power fails: %v", name, n, cut), func(t *testing.T) {
					dir, disk, l := grown(t, 2)
					if err := l.Append(&Manifest{Cause: "checkpoint", Label: "it has one"}, nil, nil); err != nil {
						t.Fatal(err)
					}
					disk.SetFault(blobtest.At(disk.Ops()+1+n, fails))
					refused := l.Unlabel(3)
					disk.SetFault(nil)
					if _, err := l.Get(3); err != nil {
						t.Errorf("it is no longer read: %v", err)
					}
					if cut {
						if err := disk.Cut(dice); err != nil {
							t.Fatal(err)
						}
					}
					again, err := Open(dir, disk)
					if err != nil {
						t.Fatal(err)
					}
					m, err := again.Get(3)
					switch {
					case err != nil:
						t.Error(err)
					case m.Cause != "checkpoint":
						t.Errorf(`m.Cause = %q, want "checkpoint"`, m.Cause)
					case again.Len() != 3:
						t.Errorf("again.Len() = %v, want 3: %+v, %+v", again.Len(), m, again)
					}
					if refused == nil && again.Labelled(3) {
						t.Error("the label is back")
					}
				})
			}
		}
	}
}

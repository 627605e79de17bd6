package cli

import (
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

func TestWhatIsFollowedIsPrintedOnce(t *testing.T) {
	var out strings.Builder
	f := &following{to: &out, seen: map[string]int64{}}
	part := func(runtime, data string, from int64) session.Printed {
		return session.Printed{Runtime: runtime, Printed: sandbox.Printed{Data: []byte(data), From: from}}
	}
	for _, all := range [][]session.Printed{
		{part("python", "one\n", 0)},
		{part("python", "one\n", 0)},
		{part("python", "one\ntwo\n", 0)},
		{part("python", "three\n", 100)}, // what was between is no longer kept
		{part("python", "three\n", 100), part("bash", "\x1b[2J\n", 0)},
	} {
		if err := f.print(all); err != nil {
			t.Fatal(err)
		}
	}
	if want := "one\ntwo\nthree\nbash:\n\\u001b[2J\n"; out.String() != want {
		t.Errorf("it printed %q, want %q", out.String(), want)
	}
}

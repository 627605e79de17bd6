package wire

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"paddock/internal/sandbox"
)

func TestABriefInspectionIsCutAndNotRefused(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	var i sandbox.Inspection
	for n := range 300 {
		i.Variables = append(i.Variables, sandbox.Variable{Name: fmt.Sprint(n, long), Type: long, Preview: long})
		i.Imports = append(i.Imports, fmt.Sprint(n, long))
	}
	i.Memory = 7
	i = Brief(i)
	if len(i.Variables) != 200 || len(i.Imports) != 200 || i.Memory != 7 {
		t.Fatalf("%d variables, %d imports, %d bytes", len(i.Variables), len(i.Imports), i.Memory)
	}
	for limit, text := range map[int]string{256: i.Variables[7].Name, 100: i.Variables[7].Type, 120: i.Variables[7].Preview, 200: i.Imports[7]} {
		if utf8.RuneCountInString(text) != limit || !strings.HasSuffix(text, "é…") {
			t.Errorf("of %d characters there are %d", limit, utf8.RuneCountInString(text))
		}
	}
	if !strings.HasPrefix(i.Variables[7].Name, "7é") {
		t.Errorf("the eighth is %.9q", i.Variables[7].Name)
	}
	if got := Brief(sandbox.Inspection{}); got.Variables != nil || got.Imports != nil {
		t.Errorf("of nothing it makes %+v", got)
	}
}

func TestWhatIsNotTooLongIsNotCut(t *testing.T) {
	for limit, text := range map[int]string{256: strings.Repeat("é", 256), 3: "ééé", 5: "abcde"} {
		if got := cut(text, limit); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// The server's end cuts as well, whatever the child says.
func TestWhatAnInspectionTellsIsBounded(t *testing.T) {
	told := func() sandbox.Inspection {
		long := strings.Repeat("x", 1<<20)
		return sandbox.Inspection{Variables: []sandbox.Variable{{Name: long, Type: long, Preview: long}}, Imports: []string{long}}
	}
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindInspect)
		c.send(KindInspected, id, told())
		c.expectSnapshot()
		c.send(KindData, id, []byte("x"))
		c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Inspection: told(), Known: true}))
	})
	in := start(t, client)
	found, err := in.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []sandbox.Inspection{found, s.Inspection} {
		v := i.Variables[0]
		for limit, text := range map[int]string{256: v.Name, 100: v.Type, 120: v.Preview, 200: i.Imports[0]} {
			if n := utf8.RuneCountInString(text); n != limit {
				t.Errorf("of %d characters there are %d", limit, n)
			}
		}
	}
}

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// left gives what is left of runs, as text.
func left(t *testing.T, j *Journal, but ...string) (all []string, runs []Left) {
	t.Helper()
	runs, err := j.Left(theRun.Owner, theRun.Session, but...)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range runs {
		all = append(all, fmt.Sprintf("%s %v", l.Execution, l.Calls))
	}
	return all, runs
}

func TestWhatIsLeftOfARunThatWasCutShortIsKnown(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if got, _ := left(t, j); got != nil {
		t.Errorf("there is left %q", got)
	}
	waiting := Run{"alice", "s-1", "x-2"}
	errs := []error{
		j.Note(theRun, 2, "mail/send"), j.Note(theRun, 1, "mail/draft"), j.Note(theRun, 3, "mail/wipe"), j.Note(theRun, 4, "mail/late"),
		j.Answered(theRun, 1, false), j.Answered(theRun, 3, true), j.Note(waiting, 1, "mail/send"), j.Note(Run{"bob", "s-1", "x-3"}, 1, "mail/send"),
	}
	// A call that is kept has an answer even where its outcome is not known.
	begin(t, j, call(4))
	begin(t, j, call(5))
	begin(t, j, call(6))
	errs = append(errs, j.End(t.Context(), call(4), Outcome{Answer: []byte(`{"error":{"kind":"timeout"}}`)}), j.End(t.Context(), call(5), Outcome{Answer: []byte("{}")}), j.End(t.Context(), call(6), Outcome{Unsent: true}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if j.Has(waiting) {
		t.Error("a run that has only notes has calls: got true, want false")
	} else if !j.Has(theRun) {
		t.Error("a run with a call has calls: got false, want true")
	}
	const want = "x-1 [{1 mail/draft true} {2 mail/send false} {4 mail/late false} {5  true}]"
	for name, j := range map[string]*Journal{"the same process": j, "another process": open(t, dir)} {
		if got, _ := left(t, j, "x-2"); len(got) != 1 {
			t.Errorf("%s: len(got) = %d, want 1: %q", name, len(got), got)
		} else if got[0] != want {
			t.Errorf("%s: got[0] = %q, want %q", name, got[0], want)
		}
	}
	_, runs := left(t, j, "x-2")
	if err := errors.Join(j.Drop("alice", "s-1", runs), j.Drop("alice", "s-1", runs)); err != nil {
		t.Error(err)
	}
	switch got, _ := left(t, j); {
	case len(got) != 1:
		t.Errorf("then there is left: len(got) = %d, want 1: %q", len(got), got)
	case got[0] != "x-2 [{1 mail/send false}]":
		t.Errorf(`then there is left: got[0] = %q, want "x-2 [{1 mail/send false}]"`, got[0])
	case j.Has(theRun):
		t.Error("then there is left: j.Has(theRun) = true, want false")
	}
	if known := begin(t, j, call(1)); known != nil {
		t.Errorf("a call of a run that was removed is known: %+v", known)
	}
	if err := errors.Join(j.Remove(theRun), j.Remove(waiting)); err != nil {
		t.Error(err)
	}
	if got, _ := left(t, j); got != nil {
		t.Errorf("in the end there is left %q", got)
	}
	if err := j.Answered(waiting, 1, false); err != nil {
		t.Error(err)
	}
	if got, _ := left(t, j); got != nil {
		t.Errorf("a late answer brings back %q", got)
	}
}

func TestWhatCannotBeReadOfNotesIsLeftOut(t *testing.T) {
	j := open(t, t.TempDir())
	if err := j.Note(theRun, 1, "mail/send"); err != nil {
		t.Fatal(err)
	}
	path := j.pathTo(theRun, notesEnd)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"nonsense\n" + string(whole) + `{"n":1,"answered":true}`, string(whole) + "\x00\x00\n" + `{"n":-1,"name":"a"}` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := left(t, j); len(got) != 1 {
			t.Errorf("of %q there is left: len(got) = %d, want 1: %q", text, len(got), got)
		} else if got[0] != "x-1 [{1 mail/send false}]" {
			t.Errorf(`of %q there is left: got[0] = %q, want "x-1 [{1 mail/send false}]"`, text, got[0])
		}
	}
}

func TestNotesThatNobodyAsksForAreRemoved(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := errors.Join(j.Note(theRun, 1, "a/b"), j.Note(Run{"alice", "s-2", "x-1"}, 1, "a/b")); err != nil {
		t.Fatal(err)
	}
	ancient := time.Now().Add(-2 * keep)
	if err := os.Chtimes(j.pathTo(theRun, notesEnd), ancient, ancient); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(files) != 1 {
		t.Errorf("len(files) = %d, want 1: %q", len(files), files)
	}
	if err := j.Forget("alice", "s-2"); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(files) != 0 {
		t.Errorf("len(files) = %d, want none: %q", len(files), files)
	}
}

// BenchmarkNotes measures what a call that is noted costs more.
func BenchmarkNotes(b *testing.B) {
	j, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if err := errors.Join(j.Note(theRun, n, "mail/send"), j.Answered(theRun, n, false)); err != nil {
			b.Fatal(err)
		}
	}
}

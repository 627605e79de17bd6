package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
)

var theRun = Run{"alice", "s-1", "x-1"}

func call(number int) Call { return Call{theRun, number, fmt.Sprint("digest-", number)} }

func begin(t *testing.T, j *Journal, c Call) *Outcome {
	t.Helper()
	known, err := j.Begin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestAfterACrashItIsKnownWhatCameOfCalls(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if j.Has(theRun) {
		t.Error("there is a run that was not made")
	}
	for n := 1; n <= 3; n++ {
		if known := begin(t, j, call(n)); known != nil {
			t.Errorf("call %d is known: %+v", n, known)
		}
	}
	if err := j.End(t.Context(), call(2), Outcome{Answer: []byte(`{"value":"<ü>\n"}`)}); err != nil {
		t.Fatal(err)
	}
	if err := j.End(t.Context(), call(3), Outcome{Unsent: true}); err != nil {
		t.Fatal(err)
	}
	for name, j := range map[string]*Journal{"the same process": j, "another process": open(t, dir)} {
		if !j.Has(theRun) {
			t.Errorf("%s: the run is not there", name)
		}
		for n, want := range []*Outcome{{Unknown: true}, {Answer: []byte(`{"value":"<ü>\n"}`)}, nil, nil} {
			known, err := j.Look(t.Context(), call(n+1))
			if err != nil {
				t.Errorf("%s: got error %v, want none", name, err)
			} else if fmt.Sprintf("%+v", known) != fmt.Sprintf("%+v", want) {
				t.Errorf("%s: got %q, want %q", name, fmt.Sprintf("%+v", known), fmt.Sprintf("%+v", want))
			}
		}
		if known := begin(t, j, call(1)); known == nil {
			t.Errorf("%s: known is nil, want one", name)
		} else if !known.Unknown {
			t.Errorf("%s: known.Unknown = false, want true", name)
		}
		other := call(2)
		other.Digest = "another"
		if _, err := j.Begin(t.Context(), other); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: another call has the number: %v", name, err)
		}
		if err := j.End(t.Context(), call(2), Outcome{Answer: []byte("{}")}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: a call ends twice: %v", name, err)
		}
		if err := j.End(t.Context(), call(9), Outcome{Answer: []byte("{}")}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("%s: a call ends that has not begun: %v", name, err)
		}
	}
	if known := begin(t, j, call(3)); known != nil {
		t.Errorf("a call that was not sent is known: %+v", known)
	}
}

func TestALineThatWasNotWrittenToItsEndIsAsIfItWereNot(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, call(1))
	path := j.path(theRun)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []string{"{", `{"n":2,"digest":"digest-2"}`, "\x00\x00\x00\x00"} {
		if err := os.WriteFile(path, append([]byte(string(whole)), torn...), 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, dir)
		if known, err := j.Look(t.Context(), call(2)); err != nil {
			t.Errorf("behind %q call 2: got error %v, want none", torn, err)
		} else if known != nil {
			t.Errorf("behind %q call 2: known = %+v, want none", torn, known)
		}
		if known := begin(t, j, call(2)); known != nil {
			t.Errorf("behind %q call 2 is known: %+v", torn, known)
		}
		switch known, err := open(t, dir).Look(t.Context(), call(2)); {
		case err != nil:
			t.Errorf("behind %q call 2 was not written: got error %v, want none", torn, err)
		case known == nil:
			t.Errorf("behind %q call 2 was not written: known is nil, want one", torn)
		case !known.Unknown:
			t.Errorf("behind %q call 2 was not written: known.Unknown = false, want true: %+v", torn, known)
		}
	}
	if err := os.WriteFile(path, append([]byte("nonsense\n"), whole...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).Begin(t.Context(), call(3)); err == nil {
		t.Error("a journal that cannot be read lets calls be made")
	}
}

// beginAndEnd writes a call down, and what it was answered.
func beginAndEnd(t testing.TB, j *Journal, n int, answer string) {
	if _, err := j.Begin(t.Context(), call(n)); err != nil {
		t.Error(err)
	}
	if err := j.End(t.Context(), call(n), Outcome{Answer: []byte(answer)}); err != nil {
		t.Error(err)
	}
}

func TestManyCallsBeginAndEndAtOnce(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var all sync.WaitGroup
	for n := 1; n <= 32; n++ {
		all.Go(func() { beginAndEnd(t, j, n, fmt.Sprint(n)) })
	}
	all.Wait()
	again := open(t, dir)
	for n := 1; n <= 32; n++ {
		switch known, err := again.Look(t.Context(), call(n)); {
		case err != nil:
			t.Errorf("call: got error %v, want none", err)
		case known == nil:
			t.Error("call: known is nil, want one")
		case string(known.Answer) != fmt.Sprint(n):
			t.Errorf("call: string(known.Answer) = %q, want %q", string(known.Answer), fmt.Sprint(n))
		}
	}
}

func TestRunsAndSessionsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	other := Run{"alice", "s-1", "x-2"}
	begin(t, j, call(1))
	begin(t, j, Call{other, 1, "d"})
	begin(t, j, Call{Run{"bob", "s-1", "x-1"}, 1, "d"})
	if err := errors.Join(j.Remove(theRun), j.Remove(theRun)); err != nil {
		t.Error(err)
	}
	if j.Has(theRun) {
		t.Error("the run is there after its removal")
	} else if !j.Has(other) {
		t.Error("another run was removed")
	}
	if known := begin(t, j, call(1)); known != nil {
		t.Errorf("a removed run's call is known: %+v", known)
	}
	if err := j.Forget("alice", "s-1"); err != nil {
		t.Error(err)
	}
	switch {
	case j.Has(theRun):
		t.Error("the session's run is there after its removal")
	case j.Has(other):
		t.Error("the session's other run is there after its removal")
	case !j.Has(Run{"bob", "s-1", "x-1"}):
		t.Error("another owner's run was removed")
	}
	ancient := time.Now().Add(-2 * keep)
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	for _, path := range files {
		if err := os.Chtimes(path, ancient, ancient); err != nil {
			t.Fatal(err)
		}
	}
	if open(t, dir).Has(Run{"bob", "s-1", "x-1"}) {
		t.Error("what is too old is kept")
	}
}

func TestWhatIsTooLargeIsNotWritten(t *testing.T) {
	j := open(t, t.TempDir())
	begin(t, j, call(1))
	if err := j.End(t.Context(), call(1), Outcome{Answer: make([]byte, maxFile)}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("it is written: %v", err)
	}
	if known, err := j.Look(t.Context(), call(1)); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if !known.Unknown {
		t.Errorf("known.Unknown = false, want true: %+v", known)
	}
}

func BenchmarkBeginAndEnd(b *testing.B) {
	j, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		beginAndEnd(b, j, n, `{"value":1}`)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"n":1,"digest":"d"}` + "\n" + `{"n":1,"answer":"e30="}` + "\n"))
	f.Add([]byte(`{"n":1,"answer":"e30="}` + "\n" + `{"n":1,"unsent":true}` + "\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		j := open(t, dir)
		path := j.path(theRun)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		first, err := j.Look(t.Context(), call(1))
		if err != nil {
			return
		}
		if again, err := open(t, dir).Look(t.Context(), call(1)); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if (first == nil) != (again == nil) {
			t.Errorf("known is %+v at first and %+v when read again, want both or none", first, again)
		}
	})
}

func TestARunThatIsInUseIsNotForgottenForOthers(t *testing.T) {
	j := open(t, t.TempDir())
	begin(t, j, call(1))
	used := j.take(theRun)
	for n := range 2 * maxRuns {
		j.give(j.take(Run{"alice", "s-1", fmt.Sprint("other-", n)}))
	}
	if again := j.take(theRun); again != used {
		t.Error("two places write one run's file")
	} else {
		j.give(again)
	}
	if kept := len(j.runs); kept > maxRuns {
		t.Errorf("%d runs are kept in mind", kept)
	}
	if err := errors.Join(j.Remove(theRun), j.Forget(theRun.Owner, theRun.Session)); err != nil {
		t.Fatal(err)
	}
	if err := j.End(t.Context(), call(1), Outcome{Answer: []byte("{}")}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a call of a run that was removed ended: %v", err)
	}
	j.give(used)
	if err := j.Remove(theRun); err != nil {
		t.Fatal(err)
	}
	if kept := len(j.runs); kept != 0 {
		t.Errorf("%d runs are kept in mind of those that were removed", kept)
	}
}

func TestMoreRunsAtOnceThanAreKeptInMind(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var taken []*run
	for n := range maxRuns + 10 {
		taken = append(taken, j.take(Run{"alice", "s-1", fmt.Sprint(n)}))
	}
	for n, one := range taken {
		if again := j.take(Run{"alice", "s-1", fmt.Sprint(n)}); again != one {
			t.Fatalf("two places write the file of run %d", n)
		} else {
			j.give(again)
		}
		j.give(one)
	}
	begin(t, j, call(1))
	if kept := len(j.runs); kept > maxRuns {
		t.Errorf("%d runs are kept in mind when they are not in use any more", kept)
	}
}

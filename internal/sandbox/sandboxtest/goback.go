package sandboxtest

import (
	"fmt"
	"os"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// marked makes an instance with the snapshots "m1" to "m3", at which x is 1 to 3,
// and gives the line at each of them.
func (k snapshotKit) marked(t *testing.T) (in keptInstance, lines [4]*line) {
	t.Helper()
	in, l := k.keeper(t), &line{}
	for n := 1; n <= 3; n++ {
		works(t, in, k.Set("x", n), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{Mark: fmt.Sprint("m", n)})
		lines[n] = l.clone()
	}
	return in, lines
}

func rewind(t *testing.T, in keptInstance, mark string) {
	t.Helper()
	if err := in.Rewind(t.Context(), mark); err != nil {
		t.Fatalf("going back to %s: %v", mark, err)
	}
}

func (k snapshotKit) testGoingBack(t *testing.T) {
	t.Run("to each of several snapshots, and forward again", func(t *testing.T) {
		in, _ := k.marked(t)
		works(t, in, lines(k.Set("x", 4), k.Set("y", 4)), "")
		for _, n := range []int{3, 1, 3, 2, 2} {
			rewind(t, in, fmt.Sprint("m", n))
			works(t, in, k.Show("x"), fmt.Sprint(n))
			fails(t, in, k.Show("y"))
			works(t, in, k.Set("x", 9), "")
		}
	})
	t.Run("to where it is", func(t *testing.T) {
		in, _ := k.marked(t)
		rewind(t, in, "m3")
		works(t, in, k.Show("x"), "3")
	})
	t.Run("what comes after it builds on what it went back to", func(t *testing.T) {
		in, all := k.marked(t)
		rewind(t, in, "m1")
		works(t, in, k.Set("y", 7), "")
		l := all[1]
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{Mark: "m4"}); s.Whole {
			t.Error("it is whole")
		}
		again := k.resumed(t, l)
		works(t, again, k.Show("x"), "1")
		works(t, again, k.Show("y"), "7")
		rewind(t, in, "m2")
		works(t, in, k.Show("x"), "2")
		rewind(t, in, "m4")
		works(t, in, k.Show("y"), "7")
	})
	t.Run("where there is nothing it changes nothing", func(t *testing.T) {
		in, all := k.marked(t)
		works(t, in, k.Set("x", 4), "")
		for _, mark := range []string{"unknown", ""} {
			wantFault(t, in.Rewind(t.Context(), mark), fault.NotFound)
		}
		works(t, in, k.Show("x"), "4")
		all[3].snapshot(t, in, sandbox.SnapshotOptions{})
		works(t, k.resumed(t, all[3]), k.Show("x"), "4")
	})
	t.Run("a snapshot of what did not change has a mark as well", func(t *testing.T) {
		in, all := k.marked(t)
		all[3].snapshot(t, in, sandbox.SnapshotOptions{Mark: "same"})
		works(t, in, k.Set("x", 4), "")
		rewind(t, in, "same")
		works(t, in, k.Show("x"), "3")
	})
	t.Run("a resumed one goes back to what it makes itself", func(t *testing.T) {
		_, all := k.marked(t)
		in := k.resumed(t, all[2])
		wantFault(t, in.Rewind(t.Context(), "m1"), fault.NotFound)
		all[2].snapshot(t, in, sandbox.SnapshotOptions{Mark: "here"})
		works(t, in, k.Set("x", 8), "")
		rewind(t, in, "here")
		works(t, in, k.Show("x"), "2")
	})
	k.testWhatGoesBack(t)
}

// testWhatGoesBack looks at what else than variables there is.
func (k snapshotKit) testWhatGoesBack(t *testing.T) {
	t.Run("random numbers do not come again", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		run(t, in, code(k.Random))
		l.snapshot(t, in, sandbox.SnapshotOptions{Mark: "m"})
		seen := map[string]bool{}
		for range 3 {
			seen[run(t, in, code(k.Random)).stdout] = true
			rewind(t, in, "m")
		}
		if len(seen) != 3 {
			t.Errorf("they are %v", seen)
		}
	})
	t.Run("an open file is where it was", func(t *testing.T) {
		if k.Open == nil {
			t.Skip("the language opens no files")
		}
		spec := k.spec(k.folder(t))
		k.put(t, spec.Mounts[0].Host+"/f.txt", "one two")
		in, l := k.startKept(t, spec), &line{}
		works(t, in, k.Open("f.txt"), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{Mark: "m"})
		works(t, in, k.ReadOn, "two")
		rewind(t, in, "m")
		works(t, in, k.ReadOn, "two")
	})
	t.Run("files that were changed under it are reopened", k.testRefresh)
	t.Run("memory that it took is given up", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		works(t, in, k.Set("x", 1), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{Mark: "small"})
		works(t, in, k.Alloc(100<<20), "")
		large := l.clone()
		large.snapshot(t, in, sandbox.SnapshotOptions{Mark: "large"})
		rewind(t, in, "small")
		works(t, in, k.Set("x", 2), "")
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); s.Bytes > 16<<20 {
			t.Errorf("it holds %d bytes", s.Bytes)
		}
		works(t, k.resumed(t, l), k.Show("x"), "2")
	})
}

// testRefresh puts other files in the place of those that a program has open, as
// going back does: by new ones that take their names.
func (k snapshotKit) testRefresh(t *testing.T) {
	if k.Open == nil {
		t.Skip("the language opens no files")
	}
	spec := k.spec(k.folder(t))
	path := spec.Mounts[0].Host + "/f.txt"
	k.put(t, path, "one ") // nothing that the language could read ahead
	in, l := k.startKept(t, spec), &line{}
	works(t, in, k.Set("x", 1), "")
	works(t, in, k.Open("f.txt"), "")
	l.snapshot(t, in, sandbox.SnapshotOptions{})
	refresh := func(text string) {
		t.Helper()
		k.put(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if err := in.Refresh(t.Context()); err != nil {
			t.Fatalf("reopening its files: %v", err)
		}
	}
	refresh("one three")
	works(t, in, k.ReadOn, "three")
	refresh("one three, and more")
	works(t, in, k.ReadOn, ", and more")
	works(t, in, k.Show("x"), "1")
	if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); s.Whole {
		t.Error("its next snapshot is whole")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := in.Refresh(t.Context()); err != nil {
		t.Fatalf("where the file is gone: %v", err)
	}
	fails(t, in, k.ReadOn)
	works(t, in, k.Show("x"), "1")
}

// fork makes one that the test's end closes.
func (k snapshotKit) fork(t *testing.T, in keptInstance, mark string) keptInstance {
	t.Helper()
	f, ok := in.Instance.(sandbox.Forker)
	if !ok {
		t.Skip("this backend forks nothing")
	}
	spec := k.spec("")
	spec.Snapshots = true
	child, err := f.Fork(t.Context(), mark, spec)
	if err != nil {
		t.Fatalf("forking at %s: %v", mark, err)
	}
	t.Cleanup(func() { child.Close() })
	return kept(t, child)
}

func (k snapshotKit) testForks(t *testing.T) {
	t.Run("go their own ways", func(t *testing.T) {
		in, all := k.marked(t)
		a, b := k.fork(t, in, "m2"), k.fork(t, in, "m3")
		works(t, a, k.Show("x"), "2")
		works(t, b, k.Show("x"), "3")
		works(t, a, k.Set("x", 20), "")
		works(t, b, k.Set("x", 30), "")
		works(t, in, k.Show("x"), "3")
		works(t, in, k.Set("x", 10), "")
		works(t, a, k.Show("x"), "20")
		works(t, b, k.Show("x"), "30")
		if s := all[2].snapshot(t, a, sandbox.SnapshotOptions{Mark: "m"}); s.Whole { // it goes on from the layers of m2
			t.Error("a fork's snapshot is whole")
		}
		in.Close()
		works(t, k.resumed(t, all[2]), k.Show("x"), "20")
		works(t, k.fork(t, a, "m"), k.Show("x"), "20")
	})
	t.Run("at what is not there", func(t *testing.T) {
		in, _ := k.marked(t)
		k.fork(t, in, "m1")
		_, err := in.Instance.(sandbox.Forker).Fork(t.Context(), "unknown", k.spec(""))
		wantFault(t, err, fault.NotFound)
		other := k.spec("")
		other.Owner = "bob"
		_, err = in.Instance.(sandbox.Forker).Fork(t.Context(), "m1", other)
		wantFault(t, err, fault.Invalid)
	})
	t.Run("draw other random numbers", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		run(t, in, code(k.Random))
		l.snapshot(t, in, sandbox.SnapshotOptions{Mark: "m"})
		seen := map[string]bool{run(t, in, code(k.Random)).stdout: true}
		for range 3 {
			seen[run(t, k.fork(t, in, "m"), code(k.Random)).stdout] = true
		}
		if len(seen) != 4 {
			t.Errorf("they are %v", seen)
		}
	})
	t.Run("need not wait for a run", func(t *testing.T) {
		in, _ := k.marked(t)
		ended := background(t.Context(), t, in, k.Print("on")+"\n"+k.Sleep, sandbox.RunLimits{})
		works(t, k.fork(t, in, "m2"), k.Show("x"), "2")
		in.Close()
		await(t, "the end of the run", ended)
	})
}

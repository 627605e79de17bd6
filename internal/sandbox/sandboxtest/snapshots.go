package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// snapshotKit is a kit whose backend makes snapshots.
type snapshotKit struct{ *kit }

// keptInstance is an instance whose state is kept by snapshots.
type keptInstance struct {
	sandbox.Instance
	sandbox.Snapshotter
}

// withSnapshots skips a test where the backend makes no snapshots.
func (k *kit) withSnapshots(test func(k snapshotKit, t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		spec := k.beside()
		spec.Snapshots = true
		in := k.start(t, spec)
		if _, ok := in.(sandbox.Snapshotter); !ok {
			t.Skip("this backend makes no snapshots")
		}
		in.Close()
		test(snapshotKit{k}, t)
	}
}

// startKept makes an instance whose state is kept, and that the test's end closes.
func (k snapshotKit) startKept(t *testing.T, spec sandbox.Spec) keptInstance {
	t.Helper()
	spec.Snapshots = true
	return kept(t, k.start(t, spec))
}

func kept(t *testing.T, in sandbox.Instance) keptInstance {
	t.Helper()
	s, ok := in.(sandbox.Snapshotter)
	if !ok {
		t.Fatalf("the instance is a %T, of which there are no snapshots", in)
	}
	return keptInstance{in, s}
}

// line is what the snapshots of one instance have written, as a session keeps it.
type line struct {
	layers [][]byte
	state  []byte
}

// snapshot makes one and adds it to the line.
func (l *line) snapshot(t *testing.T, in keptInstance, o sandbox.SnapshotOptions) sandbox.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var written bytes.Buffer
	s, err := in.Snapshot(ctx, &written, o)
	if err != nil {
		t.Fatalf("making a snapshot: %v", err)
	}
	if s.Whole {
		l.layers = nil
	}
	if len(s.State) == 0 {
		t.Error("a snapshot has no state")
	}
	if s.Bytes < 0 {
		t.Errorf("a snapshot has %d bytes", s.Bytes)
	}
	if wrote := written.Len() > 0; wrote != (s.Whole || s.Bytes > 0) {
		t.Errorf("a snapshot wrote %d bytes, and says %d, whole %v", written.Len(), s.Bytes, s.Whole)
	}
	if written.Len() > 0 {
		l.layers = append(l.layers, written.Bytes())
	}
	l.state = s.State
	return s
}

// resume is the line as a Spec takes it.
func (l *line) resume() *sandbox.Resume {
	r := &sandbox.Resume{State: l.state}
	for _, layer := range l.layers {
		r.Layers = append(r.Layers, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	}
	return r
}

func (l *line) clone() *line { return &line{slices.Clone(l.layers), l.state} }

// keeper makes an instance without folders whose state is kept.
func (k snapshotKit) keeper(t *testing.T) keptInstance {
	t.Helper()
	return k.startKept(t, k.spec(""))
}

// resumed makes an instance that goes on from a line.
func (k snapshotKit) resumed(t *testing.T, l *line) keptInstance {
	t.Helper()
	spec := k.spec("")
	spec.Resume = l.resume()
	return k.startKept(t, spec)
}

func (k snapshotKit) testSnapshots(t *testing.T) {
	t.Run("what was there is there again", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		works(t, in, lines(k.Set("x", 41), k.Import), "")
		works(t, in, k.Define, "")
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); !s.Whole || s.Bytes == 0 {
			t.Errorf("the first one is whole %v, with %d bytes", s.Whole, s.Bytes)
		}
		works(t, in, k.Set("x", 0), "")
		in.Close()
		again := k.resumed(t, l)
		works(t, again, k.Show("x"), "41")
		works(t, again, k.UseDefined, "42")
		works(t, again, k.UseImport, "3")
	})
	t.Run("each one holds what changed since the one before", k.testChain)
	t.Run("an inspection comes with it", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		works(t, in, k.Set("answer", 42), "")
		for range 2 { // also where nothing changed
			s := l.snapshot(t, in, sandbox.SnapshotOptions{})
			if !s.Known || !slices.ContainsFunc(s.Inspection.Variables, func(v sandbox.Variable) bool {
				return v.Name == "answer" && v.Preview == "42"
			}) {
				t.Errorf("known %v: %+v", s.Known, s.Inspection.Variables)
			}
		}
	})
	t.Run("a fresh interpreter can be kept as well", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		works(t, k.resumed(t, l), k.Print("here"), "here")
	})
	t.Run("a portable one serves another backend alone", k.testPortable)
	t.Run("during a run it is a conflict", func(t *testing.T) {
		in := k.keeper(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := background(ctx, t, in, k.Print("on")+"\n"+k.Sleep, sandbox.RunLimits{})
		_, err := in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{})
		wantFault(t, err, fault.Conflict)
		wantFault(t, in.Rewind(t.Context(), "m"), fault.Conflict)
		wantFault(t, in.Refresh(t.Context()), fault.Conflict)
		cancel()
		await(t, "the end of the run", ended)
	})
	t.Run("a program goes on as if nothing had been", k.testGoesOn)
	t.Run("one that fails", k.testTorn)
	t.Run("a state that cannot be resumed", k.testUnresumable)
	t.Run("what is stopped by force goes back to the last one", k.testForcedBack)
}

func (k snapshotKit) testPortable(t *testing.T) {
	in, l := k.keeper(t), &line{}
	works(t, in, k.Set("x", 1), "")
	l.snapshot(t, in, sandbox.SnapshotOptions{})
	portable := l.clone()
	if s := portable.snapshot(t, in, sandbox.SnapshotOptions{Portable: true}); !s.Whole {
		t.Error("it is not whole")
	}
	works(t, in, k.Set("x", 2), "")
	if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); s.Whole { // nothing had changed: the line goes on
		t.Error("the next one is whole")
	}
	works(t, k.resumed(t, l), k.Show("x"), "2")
	other := snapshotKit{&kit{harness: newHarness(t, k.suite), Programs: k.Programs, runtime: k.runtime}}
	again := other.resumed(t, portable)
	works(t, again, k.Show("x"), "1")
	works(t, again, k.Set("y", 3), "")
	if s := portable.snapshot(t, again, sandbox.SnapshotOptions{}); s.Whole {
		t.Error("what comes after it is whole")
	}
	again = other.resumed(t, portable)
	works(t, again, k.Show("x"), "1")
	works(t, again, k.Show("y"), "3")
}

func (k snapshotKit) testForcedBack(t *testing.T) {
	in, l := k.keeper(t), &line{}
	works(t, in, k.Set("x", 1), "")
	l.snapshot(t, in, sandbox.SnapshotOptions{})
	works(t, in, k.Set("x", 2), "")
	l.snapshot(t, in, sandbox.SnapshotOptions{})
	o := k.timed(t, in, k.Set("x", 3), k.Stubborn, grace)
	if o.State == sandbox.Restored {
		works(t, in, k.Show("x"), "2")
	}
	works(t, in, k.Set("y", 5), "")
	l.snapshot(t, in, sandbox.SnapshotOptions{})
	again := k.resumed(t, l)
	works(t, again, k.Show("y"), "5")
	if o.State == sandbox.Restored {
		works(t, again, k.Show("x"), "2")
	}
}

func (k snapshotKit) testChain(t *testing.T) {
	in, l := k.keeper(t), &line{}
	works(t, in, k.Set("first", 1), "")
	whole := l.snapshot(t, in, sandbox.SnapshotOptions{})
	for n := range 6 {
		works(t, in, k.Set("x", n), "")
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); s.Whole || s.Bytes == 0 || s.Bytes > whole.Bytes {
			t.Errorf("number %d is whole %v, with %d bytes", n, s.Whole, s.Bytes)
		}
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); s.Whole || s.Bytes != 0 {
			t.Errorf("nothing has changed, and it is whole %v, with %d bytes", s.Whole, s.Bytes)
		}
	}
	again := k.resumed(t, l)
	works(t, again, k.Show("first"), "1")
	works(t, again, k.Show("x"), "5")
	works(t, again, k.Set("x", 6), "")
	if s := l.snapshot(t, again, sandbox.SnapshotOptions{}); s.Whole || len(l.layers) != 8 {
		t.Errorf("after it was resumed it is whole %v, and number %d", s.Whole, len(l.layers))
	}
	if s := l.snapshot(t, again, sandbox.SnapshotOptions{Whole: true}); !s.Whole || len(l.layers) != 1 {
		t.Errorf("it was to be whole, and is not")
	}
	works(t, again, k.Set("x", 7), "")
	l.snapshot(t, again, sandbox.SnapshotOptions{})
	last := k.resumed(t, l)
	works(t, last, k.Show("first"), "1")
	works(t, last, k.Show("x"), "7")
}

func (k snapshotKit) testGoesOn(t *testing.T) {
	t.Run("its random numbers are those that would have come", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		run(t, in, code(k.Random))
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		want := run(t, in, code(k.Random)).stdout
		if got := run(t, k.resumed(t, l), code(k.Random)).stdout; got != want || got == "" {
			t.Errorf("it is %q, not %q", got, want)
		}
	})
	t.Run("reseeded they are others", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		run(t, in, code(k.Random))
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		seen := map[string]bool{run(t, in, code(k.Random)).stdout: true}
		for range 2 {
			spec := k.spec("")
			spec.Resume = l.resume()
			spec.Resume.Reseed = true
			seen[run(t, k.start(t, spec), code(k.Random)).stdout] = true
		}
		if len(seen) != 3 {
			t.Errorf("they are %v", seen)
		}
	})
	t.Run("an open file goes on where it was", func(t *testing.T) {
		if k.Open == nil {
			t.Skip("the language opens no files")
		}
		spec := k.spec(k.folder(t))
		k.put(t, spec.Mounts[0].Host+"/f.txt", "one two")
		in, l := k.startKept(t, spec), &line{}
		works(t, in, k.Open("f.txt"), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		in.Close()
		spec.Resume = l.resume()
		works(t, k.startKept(t, spec), k.ReadOn, "two")
	})
}

// broken is a writer that fails after so many bytes.
type broken struct{ left int }

var errBroken = errors.New("the disk is full")

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func (k snapshotKit) testTorn(t *testing.T) {
	goesOn := func(t *testing.T, in keptInstance) {
		t.Helper()
		works(t, in, k.Set("y", 2), "")
		l := &line{}
		if s := l.snapshot(t, in, sandbox.SnapshotOptions{}); !s.Whole {
			t.Error("the next one is not whole")
		}
		again := k.resumed(t, l)
		works(t, again, k.Show("x"), "1")
		works(t, again, k.Show("y"), "2")
	}
	begun := func(t *testing.T) keptInstance {
		in := k.keeper(t)
		(&line{}).snapshot(t, in, sandbox.SnapshotOptions{})
		works(t, in, k.Set("x", 1), "")
		return in
	}
	t.Run("for want of room", func(t *testing.T) {
		in := begun(t)
		if _, err := in.Snapshot(t.Context(), &broken{10}, sandbox.SnapshotOptions{Mark: "torn"}); !errors.Is(err, errBroken) {
			t.Errorf("it gives %v", err)
		}
		goesOn(t, in)
	})
	t.Run("because its context ends", func(t *testing.T) {
		in := begun(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := in.Snapshot(ctx, writer(func(p []byte) (int, error) { cancel(errBroken); return len(p), nil }), sandbox.SnapshotOptions{Whole: true})
		if err != nil && !errors.Is(err, errBroken) {
			t.Errorf("it gives %v", err)
		}
		if err != nil { // else it was faster
			goesOn(t, in)
		}
	})
	t.Run("because its context has ended", func(t *testing.T) {
		in := begun(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := in.Snapshot(ctx, io.Discard, sandbox.SnapshotOptions{}); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("it gives %v", err)
		}
		works(t, in, k.Show("x"), "1")
	})
	t.Run("because the instance is closed", func(t *testing.T) {
		in := begun(t)
		closing := false
		_, err := in.Snapshot(t.Context(), writer(func(p []byte) (int, error) {
			if !closing {
				go in.Close()
				closing = true
			}
			return len(p), nil
		}), sandbox.SnapshotOptions{})
		if err != nil {
			wantFault(t, err, fault.Unavailable)
		}
		await(t, "the end of the instance", in.Done())
		_, err = in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{})
		wantFault(t, err, fault.Unavailable)
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func (k snapshotKit) testUnresumable(t *testing.T) {
	in, l := k.keeper(t), &line{}
	for n := range 3 {
		works(t, in, k.Set("x", n), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{})
	}
	flipped := func(at int) func(*line) {
		return func(l *line) {
			l.layers[1] = bytes.Clone(l.layers[1])
			l.layers[1][(at+len(l.layers[1]))%len(l.layers[1])] ^= 1
		}
	}
	for name, damage := range map[string]func(l *line){
		"its last layer is missing":    func(l *line) { l.layers = l.layers[:2] },
		"a layer in between":           func(l *line) { l.layers = slices.Delete(l.layers, 1, 2) },
		"the first one":                func(l *line) { l.layers = l.layers[1:] },
		"all of them":                  func(l *line) { l.layers = nil },
		"layers are in another order":  func(l *line) { l.layers[1], l.layers[2] = l.layers[2], l.layers[1] },
		"one comes twice":              func(l *line) { l.layers = append(l.layers, l.layers[2]) },
		"a layer ends too early":       func(l *line) { l.layers[1] = l.layers[1][:len(l.layers[1])-1] },
		"a layer is empty":             func(l *line) { l.layers[1] = nil },
		"something comes behind it":    func(l *line) { l.layers[1] = append(bytes.Clone(l.layers[1]), 0) },
		"a layer's head is damaged":    flipped(3),
		"a layer's middle is damaged":  func(l *line) { flipped(len(l.layers[1]) / 2)(l) },
		"a layer's end is damaged":     flipped(-1),
		"the state is empty":           func(l *line) { l.state = nil },
		"the state is nonsense":        func(l *line) { l.state = []byte("nonsense") },
		"the state is of another line": func(l *line) { l.state = bytes.Repeat([]byte("x"), 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := l.clone()
			damage(bad)
			spec := k.spec("")
			spec.Resume = bad.resume()
			again, err := k.backend.Start(t.Context(), spec)
			wantFault(t, err, fault.Unsupported)
			if err == nil {
				again.Close()
			}
		})
	}
	k.testUnfit(t, l)
	works(t, k.resumed(t, l), k.Show("x"), "2")
}

// testUnfit tries to resume what is whole where it does not fit.
func (k snapshotKit) testUnfit(t *testing.T, l *line) {
	t.Run("a layer cannot be read", func(t *testing.T) {
		spec := k.spec("")
		spec.Resume = l.resume()
		spec.Resume.Layers[1] = func() (io.ReadCloser, error) { return nil, errBroken }
		if _, err := k.backend.Start(t.Context(), spec); !errors.Is(err, errBroken) {
			t.Errorf("it gives %v", err)
		}
	})
	for _, r := range k.backend.Probe(t.Context()).Runtimes {
		if r.Name == k.runtime {
			continue
		}
		t.Run("it is one of another runtime than "+r.Name, func(t *testing.T) {
			spec := k.spec("")
			spec.Runtime, spec.Resume = r.Name, l.resume()
			_, err := k.backend.Start(t.Context(), spec)
			wantFault(t, err, fault.Unsupported)
		})
	}
	t.Run("there is too little memory for it", func(t *testing.T) {
		in, l := k.keeper(t), &line{}
		works(t, in, k.Alloc(100<<20), "")
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		spec := k.spec("")
		spec.Limits.MemoryBytes, spec.Resume = 64<<20, l.resume()
		_, err := k.backend.Start(t.Context(), spec)
		wantFault(t, err, fault.Invalid, fault.Exhausted)
	})
}

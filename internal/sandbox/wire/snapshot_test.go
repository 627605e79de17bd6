package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

var state = []byte("state")

func saved(s sandbox.Snapshot) SavedBody { return SavedBody{Snapshot: s} }

// expectSnapshot gives what the server asks for.
func (c child) expectSnapshot() (body SnapshotBody) {
	c.t.Helper()
	if err := json.Unmarshal(c.expect(KindSnapshot).Body, &body); err != nil {
		c.t.Error(err)
	}
	return body
}

func TestASnapshotIsWrittenAsItComes(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		if got := c.expectSnapshot(); got != (SnapshotBody{Mark: "m"}) {
			t.Errorf("it asks for %+v", got)
		}
		c.send(KindData, id, []byte("one "))
		c.send(KindStdout, id, []byte("of an inspection"))
		c.send(KindData, id, []byte("two"))
		c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 4096, Known: true}))
		if got := c.expectSnapshot(); got != (SnapshotBody{Whole: true, Portable: true}) {
			t.Errorf("it asks for %+v", got)
		}
		c.send(KindData, id, []byte("x"))
		c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state}))
		if got := c.expectSnapshot(); got != (SnapshotBody{}) {
			t.Errorf("it asks for %+v", got)
		}
		c.send(KindSaved, id, saved(sandbox.Snapshot{State: state}))
	})
	in := start(t, client)
	var w bytes.Buffer
	s, err := in.Snapshot(t.Context(), &w, sandbox.SnapshotOptions{Mark: "m"})
	if err != nil || w.String() != "one two" || !s.Whole || s.Bytes != 4096 || !s.Known || !bytes.Equal(s.State, state) {
		t.Errorf("it is %+v, %q, %v", s, &w, err)
	}
	if _, err := in.Snapshot(t.Context(), &w, sandbox.SnapshotOptions{Portable: true}); err != nil {
		t.Error(err)
	}
	if s, err := in.Snapshot(t.Context(), &w, sandbox.SnapshotOptions{}); err != nil || s.Whole || s.Bytes != 0 {
		t.Errorf("it is %+v, %v", s, err)
	}
}

func TestASnapshotsDataIsCredited(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expectSnapshot()
		for range 8 {
			c.send(KindData, id, make([]byte, creditAt))
			if body := string(c.expect(KindTaken).Body); body != `{"bytes":262144}` {
				t.Errorf("the credit is %s", body)
			}
		}
		c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
	})
	if _, err := start(t, client).Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{}); err != nil {
		t.Error(err)
	}
}

// Whatever a snapshot fails of, the instance works, and the next one is whole.
func TestASnapshotThatFails(t *testing.T) {
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		w      io.Writer
		script func(c child, id uint32)
		check  func(err error) bool
	}{
		"as it cannot be written": {
			writerFunc(func([]byte) (int, error) { return 0, full }),
			func(c child, id uint32) {
				c.send(KindData, id, []byte("one"))
				c.expect(KindInterrupt)
				c.send(KindData, id, []byte("two"))
				c.send(KindSaved, id, SavedBody{StatusBody: StatusBody{Kind: string(fault.Unavailable)}})
			},
			func(err error) bool { return errors.Is(err, full) },
		},
		"as it cannot be written, which is told too late": {
			writerFunc(func([]byte) (int, error) { return 0, full }),
			func(c child, id uint32) {
				c.send(KindData, id, []byte("one"))
				c.expect(KindInterrupt)
				c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
			},
			func(err error) bool { return errors.Is(err, full) },
		},
		"as it is written in part": {
			writerFunc(func([]byte) (int, error) { return 1, nil }),
			func(c child, id uint32) {
				c.send(KindData, id, []byte("one"))
				c.expect(KindInterrupt)
				c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
			},
			func(err error) bool { return errors.Is(err, io.ErrShortWrite) },
		},
		"as the child says so": {
			io.Discard,
			func(c child, id uint32) {
				c.send(KindData, id, []byte("one"))
				c.send(KindSaved, id, SavedBody{StatusBody: StatusBody{Kind: string(fault.Exhausted), Message: "no room", Hint: "make some"}})
			},
			func(err error) bool { return fault.KindOf(err) == fault.Exhausted && fault.Of(err).Hint == "make some" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.started()
				ch.expectSnapshot()
				c.script(ch, id)
				if got := ch.expectSnapshot(); !got.Whole {
					t.Error("the next one need not be whole")
				}
				ch.send(KindData, id, []byte("all"))
				ch.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
				if got := ch.expectSnapshot(); got.Whole {
					t.Error("the one after it has to be whole as well")
				}
				ch.send(KindSaved, id, saved(sandbox.Snapshot{State: state}))
			})
			in := start(t, client)
			if _, err := in.Snapshot(t.Context(), c.w, sandbox.SnapshotOptions{}); err == nil || !c.check(err) {
				t.Errorf("it gives %v", err)
			}
			for range 2 {
				if _, err := in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestASnapshotWhoseContextEndsIsGivenUp(t *testing.T) {
	begun, answer := make(chan struct{}), make(chan struct{})
	client := dial(t, func(c child) {
		id := c.started()
		c.expectSnapshot()
		close(begun)
		c.expect(KindInterrupt)
		c.send(KindData, id, make([]byte, 3*Window)) // what was under way, and more: nobody looks any more
		<-answer
		c.send(KindSaved, id, SavedBody{StatusBody: StatusBody{Kind: string(fault.Unavailable)}})
		c.expect(KindRun)
		c.send(KindDone, id, exited)
		if got := c.expectSnapshot(); !got.Whole {
			t.Error("the next one need not be whole")
		}
		c.send(KindData, id, []byte("all"))
		c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
	})
	in := start(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := in.Snapshot(ctx, io.Discard, sandbox.SnapshotOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("it gives %v", err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := in.Run(impatient, sandbox.Command{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run before the child has answered: %v", err)
	}
	close(answer)
	if _, err := in.Run(t.Context(), sandbox.Command{}); err != nil {
		t.Error(err)
	}
	if _, err := in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAChildThatDoesNotGiveASnapshotUpIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := dialDeaf(t, func(c child, id uint32) {
			c.expectSnapshot()
			c.send(KindData, id, []byte("one"))
		})
		in := start(t, client)
		broken := writerFunc(func([]byte) (int, error) { return 0, errors.New("broken") })
		if _, err := in.Snapshot(t.Context(), broken, sandbox.SnapshotOptions{}); fault.KindOf(err) != fault.Unavailable || client.Err() == nil {
			t.Errorf("it gives %v; the connection: %v", err, client.Err())
		}
	})
}

func TestAChildThatLiesAboutASnapshotIsHungUpOn(t *testing.T) {
	whole := sandbox.Snapshot{Whole: true, State: state, Bytes: 4096}
	with := func(change func(s *sandbox.Snapshot)) SavedBody {
		s := whole
		change(&s)
		return saved(s)
	}
	for name, c := range map[string]struct {
		data   int
		answer any
	}{
		"more data than memory":  {int(DefaultMemory+DefaultMemory/64) + 2*Window, nil},
		"no JSON":                {1, []byte("{")},
		"no state":               {1, with(func(s *sandbox.Snapshot) { s.State = nil })},
		"too long a state":       {1, with(func(s *sandbox.Snapshot) { s.State = make([]byte, MaxState+1) })},
		"negative bytes":         {1, with(func(s *sandbox.Snapshot) { s.Bytes = -1 })},
		"more bytes than memory": {1, with(func(s *sandbox.Snapshot) { s.Bytes = DefaultMemory + 1 })},
		"whole, and no data":     {0, saved(whole)},
		"not whole":              {1, with(func(s *sandbox.Snapshot) { s.Whole = false })},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.started()
				ch.expectSnapshot()
				go func() { // what is credited
					for {
						if _, err := ch.Read(); err != nil {
							return
						}
					}
				}()
				for left := c.data; left > 0; left -= Window {
					if ch.Write(KindData, id, make([]byte, min(left, Window))) != nil {
						return
					}
				}
				if c.answer != nil {
					ch.send(KindSaved, id, c.answer)
				}
			})
			_, err := start(t, client).Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{Whole: true})
			if err == nil {
				t.Error("it is taken")
			}
			<-client.Done()
		})
	}
}

func TestAChildThatSendsASnapshotFasterThanItMayIsHungUpOn(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expectSnapshot()
		for range 64 {
			if c.Write(KindData, id, make([]byte, Window)) != nil {
				return
			}
		}
	})
	slow := writerFunc(func(p []byte) (int, error) { <-client.Done(); return len(p), nil })
	if _, err := start(t, client).Snapshot(t.Context(), slow, sandbox.SnapshotOptions{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it gives %v", err)
	}
}

func TestARewind(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		kind   fault.Kind
	}{
		"works":                    {StatusBody{}, ""},
		"finds nothing":            {StatusBody{Kind: string(fault.NotFound), Message: "not at hand"}, fault.NotFound},
		"is answered with no JSON": {[]byte("{"), fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.started()
				if body := string(ch.expect(KindRewind).Body); body != `{"mark":"m"}` {
					t.Errorf("it asks for %s", body)
				}
				ch.send(KindRewound, id, c.answer)
			})
			if err := start(t, client).Rewind(t.Context(), "m"); fault.KindOf(err) != c.kind {
				t.Errorf("it gives %v", err)
			}
		})
	}
}

func TestARefresh(t *testing.T) {
	client := dial(t, func(c child) {
		id := c.started()
		c.expect(KindRefresh)
		c.send(KindRefreshed, id, StatusBody{})
		c.expect(KindRefresh)
		c.send(KindRefreshed, id, StatusBody{Kind: string(fault.Unavailable)})
	})
	in := start(t, client)
	if err := in.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if err := in.Refresh(t.Context()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it gives %v", err)
	}
}

// A child that is stuck holds nobody for long; a slow disk is not the child's fault.
func TestAChildThatSaysNothingWhileItMakesASnapshotIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := make(chan struct{}, 3)
		client := dialDeaf(t, func(c child, id uint32) {
			c.expectSnapshot()
			for range 3 {
				time.Sleep(silence - time.Second)
				c.send(KindData, id, []byte("one"))
				<-written
			}
			c.send(KindSaved, id, saved(sandbox.Snapshot{Whole: true, State: state, Bytes: 1}))
			c.expectSnapshot()
			c.send(KindData, id, []byte("one"))
		})
		in := start(t, client)
		slow := writerFunc(func(p []byte) (int, error) {
			time.Sleep(2 * silence)
			written <- struct{}{}
			return len(p), nil
		})
		if _, err := in.Snapshot(t.Context(), slow, sandbox.SnapshotOptions{}); err != nil {
			t.Fatalf("one that comes slowly: %v", err)
		}
		began := time.Now() // of the bubble's clock
		if _, err := in.Snapshot(t.Context(), io.Discard, sandbox.SnapshotOptions{}); fault.KindOf(err) != fault.Unavailable || client.Err() == nil {
			t.Errorf("it gives %v; the connection: %v", err, client.Err())
		}
		if took := time.Since(began); took != silence {
			t.Errorf("that took %v", took)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
}

func layers(all ...string) (opened []Layer) {
	for _, l := range all {
		opened = append(opened, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(l)), nil })
	}
	return opened
}

func resuming() StartBody {
	return StartBody{Runtime: "python", Resume: &ResumeBody{State: state, Reseed: true}}
}

func TestAStateFollowsItsStart(t *testing.T) {
	client := dial(t, func(c child) {
		f := c.expect(KindStart)
		var body StartBody
		if err := json.Unmarshal(f.Body, &body); err != nil || body.Resume == nil || body.Resume.Layers != 3 || !bytes.Equal(body.Resume.State, state) || !body.Resume.Reseed {
			t.Errorf("the start is %s (%v)", f.Body, err)
		}
		for _, want := range []string{"one", "", "", "three", ""} {
			if got := string(c.expect(KindLayer).Body); got != want {
				t.Errorf("a layer is %q, want %q", got, want)
			}
		}
		c.send(KindStarted, f.ID, StatusBody{})
	})
	if _, err := client.Start(t.Context(), resuming(), layers("one", "", "three")...); err != nil {
		t.Error(err)
	}
}

func TestLayersAreSentAsTheyAreTaken(t *testing.T) {
	const size = 5 * Window
	client := dial(t, func(c child) {
		id := c.expect(KindStart).ID
		ahead, got := 0, 0
		for {
			n := len(c.expect(KindLayer).Body)
			if n == 0 {
				break
			}
			got += n
			if ahead += n; ahead > Window {
				t.Fatalf("%d bytes are under way", ahead)
			}
			if ahead > Window-piece {
				c.send(KindWantLayer, id, CreditBody{Bytes: ahead})
				ahead = 0
			}
		}
		if got != size {
			t.Errorf("%d bytes came", got)
		}
		c.send(KindStarted, id, StatusBody{})
	})
	if _, err := client.Start(t.Context(), resuming(), layers(strings.Repeat("x", size))...); err != nil {
		t.Error(err)
	}
}

// A start that is refused while its state is still coming is over at once.
func TestAResumingThatFails(t *testing.T) {
	unreadable := errors.New("the disk is gone")
	large := strings.Repeat("x", 3*Window)
	for name, c := range map[string]struct {
		layers []Layer
		script func(c child, id uint32)
		check  func(error) bool
	}{
		"it is refused in the middle": {layers(large), func(c child, id uint32) {
			c.expect(KindLayer)
			c.send(KindStarted, id, StatusBody{Kind: string(fault.Unsupported), Message: "another build"})
		}, func(err error) bool { return fault.KindOf(err) == fault.Unsupported }},
		"a layer cannot be opened": {
			[]Layer{func() (io.ReadCloser, error) { return nil, unreadable }}, nil,
			func(err error) bool { return errors.Is(err, unreadable) },
		},
		"a layer cannot be read": {
			[]Layer{func() (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader("abc"), failing{unreadable})), nil
			}}, nil,
			func(err error) bool { return errors.Is(err, unreadable) },
		},
		"the credit is no JSON": {layers(large), func(c child, id uint32) {
			c.send(KindWantLayer, id, []byte("{"))
		}, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(ch child) {
				id := ch.expect(KindStart).ID
				if c.script != nil {
					c.script(ch, id)
				}
				for { // what is still coming
					f, err := ch.Read()
					if err != nil {
						return
					}
					if f.Kind == KindClose {
						ch.send(KindGone, id, GoneBody{})
					}
				}
			})
			if _, err := client.Start(t.Context(), resuming(), c.layers...); !c.check(err) {
				t.Errorf("it gives %v", err)
			}
			if n := client.Instances(); n != 0 || client.Err() != nil {
				t.Errorf("%d instances are held, the connection: %v", n, client.Err())
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAStateThatIsTooMuchIsNotSent(t *testing.T) {
	client := dial(t, func(child) {})
	body := resuming()
	body.Resume.State = make([]byte, MaxState+1)
	if _, err := client.Start(t.Context(), body); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("a state that is too long: %v", err)
	}
	if _, err := client.Start(t.Context(), resuming(), make([]Layer, MaxLayers+1)...); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("too many layers: %v", err)
	}
}

// dialDeaf connects to a child that plays a script with its one instance and
// then takes no notice of anything.
func dialDeaf(t *testing.T, script func(c child, id uint32)) *Client {
	t.Helper()
	return dial(t, func(c child) {
		script(c, c.started())
		_, _ = io.Copy(io.Discard, c.stream)
	})
}

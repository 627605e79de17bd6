package broker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/journal"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

func journalIn(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func callOf(number int, tool, arguments string) sandbox.Call {
	return sandbox.Call{Number: number, Body: []byte(`{"op":"call","server":"party","tool":"` + tool + `","arguments":` + arguments + `}`)}
}

// slow gives a server a tool that waits until it is let go, and tells how often it was
// called.
func (c *counterparty) slow() (began chan struct{}, release func(), calls *atomic.Int64) {
	began, gate, calls := make(chan struct{}, 10), make(chan struct{}), &atomic.Int64{}
	c.add(&mcp.Tool{Name: "slow"}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) {
		calls.Add(1)
		began <- struct{}{}
		<-gate
		return text("at last"), nil
	})
	return began, sync.OnceFunc(func() { close(gate) }), calls
}

// suspended is a run that has a slow call under way, and waits for a person.
type suspended struct {
	*counterparty
	config  Config
	began   chan struct{}
	release func()
	calls   *atomic.Int64
	granted chan error
	asked   chan Asked
}

func newSuspended(t *testing.T) *suspended {
	s := &suspended{counterparty: serve(t), granted: make(chan error, 10), asked: make(chan Asked, 10)}
	s.began, s.release, s.calls = s.slow()
	t.Cleanup(s.release)
	d := s.definition("party")
	d.Policy = Policy{Ask: []string{"delete-all"}}
	s.config = Config{Servers: []Definition{d}, Journal: journalIn(t, t.TempDir()), Approve: func(ctx context.Context, a Asked) error {
		s.asked <- a
		select {
		case err := <-s.granted:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	return s
}

// start makes both calls, and gives what ends the run and their answers.
func (s *suspended) start(t *testing.T, b *Broker) (stop context.CancelFunc, slow, ask chan string) {
	ctx, stop := context.WithCancel(t.Context())
	slow, ask = make(chan string, 1), make(chan string, 1)
	go func() { slow <- string(b.Call(ctx, run(), callOf(1, "slow", `{}`))) }()
	<-s.began
	go func() { ask <- string(b.Call(ctx, run(), callOf(2, "delete-all", `{"a":1}`))) }()
	<-s.asked
	return stop, slow, ask
}

func TestACallThatIsUnderWayWhenItsRunIsSuspendedIsMadeOnce(t *testing.T) {
	s := newSuspended(t)
	b := open(t, s.config)
	stop, slow, asking := s.start(t, b)
	stop() // the session is kept, and lets go of the calls
	<-slow
	<-asking
	// It goes on while the first call is still under way.
	answers := make(chan string, 1)
	go func() { answers <- string(b.Call(t.Context(), run(), callOf(1, "slow", `{}`))) }()
	s.granted <- nil
	if got := string(b.Call(t.Context(), run(), callOf(2, "delete-all", `{"a":1}`))); got != `{"value":"gone"}` {
		t.Errorf("what was granted gives %s", got)
	}
	s.release()
	if got := <-answers; got != `{"value":"at last"}` {
		t.Errorf("the slow one gives %s", got)
	}
	// And once more, when all of it has ended.
	for number, want := range map[int]string{1: `{"value":"at last"}`, 2: `{"value":"gone"}`} {
		c := callOf(1, "slow", `{}`)
		if number == 2 {
			c = callOf(2, "delete-all", `{"a":1}`)
		}
		if got := string(b.Call(t.Context(), run(), c)); got != want {
			t.Errorf("asked again, call %d gives %s", number, got)
		}
	}
	if keys := s.seen(); len(keys) != 2 {
		t.Errorf("the server was called: len(keys) = %d, want 2: %q", len(keys), keys)
	} else if s.calls.Load() != 1 {
		t.Errorf("the server was called: s.calls = %d, want 1", s.calls.Load())
	}
	if got := string(b.Call(t.Context(), run(), callOf(2, "delete-all", `{"a":2}`))); !strings.Contains(got, `"conflict"`) {
		t.Errorf("another call of the number gives %s", got)
	}
	b.Finished(run())
	if s.config.Journal.Has(runOf(run())) {
		t.Error("the run's calls are kept after its end")
	}
}

func TestAfterACrashNothingIsMadeAgain(t *testing.T) {
	s := newSuspended(t)
	b := open(t, s.config)
	stop, slow, asking := s.start(t, b)
	s.granted <- nil
	if got := <-asking; got != `{"value":"gone"}` {
		t.Fatalf("what was granted gives %s", got)
	}
	// Another process goes on with the run as it was kept, while the first one is dead.
	next := open(t, s.config)
	if got := string(next.Call(t.Context(), run(), callOf(1, "slow", `{}`))); !strings.Contains(got, `{"error":{"kind":"unknown"`) {
		t.Errorf("a call whose outcome is not known gives %s", got)
	}
	if got := string(next.Call(t.Context(), run(), callOf(2, "delete-all", `{"a":1}`))); got != `{"value":"gone"}` {
		t.Errorf("a call that ended gives %s", got)
	}
	if got := string(next.Call(t.Context(), run(), callOf(3, "echo", `{"text":"a"}`))); got != `{"value":"a"}` {
		t.Errorf("a new call gives %s", got)
	}
	switch keys := s.seen(); {
	case len(keys) != 3:
		t.Errorf("the server was called: len(keys) = %d, want 3: %q", len(keys), keys)
	case s.calls.Load() != 1:
		t.Errorf("the server was called: s.calls = %d, want 1", s.calls.Load())
	case len(s.asked) != 0:
		t.Errorf("the server was called: len(s.asked) = %d, want none", len(s.asked))
	}
	// And neither does a third one, which knows of the new call as well.
	third := open(t, s.config)
	if got := string(third.Call(t.Context(), run(), callOf(3, "echo", `{"text":"a"}`))); got != `{"value":"a"}` {
		t.Errorf("once more: got %q, want %q", got, `{"value":"a"}`)
	} else if len(s.seen()) != 3 {
		t.Errorf("once more: len(s.seen()) = %d, want 3: %q", len(s.seen()), s.seen())
	}
	s.release()
	<-slow
	stop()
}

func TestARunThatIsNeverSuspendedIsNotWrittenDownAndItsCallsEndWithIt(t *testing.T) {
	s := newSuspended(t)
	b := open(t, s.config)
	ctx, stop := context.WithCancel(t.Context())
	answers := make(chan string, 1)
	go func() { answers <- string(b.Call(ctx, run(), callOf(1, "slow", `{}`))) }()
	<-s.began
	stop()
	if got := <-answers; !strings.Contains(got, `"error"`) {
		t.Errorf("a call that was given up gives %s", got)
	}
	if s.config.Journal.Has(runOf(run())) {
		t.Error("its calls were written down")
	}
	b.underway.mu.Lock()
	left := len(b.underway.runs)
	b.underway.mu.Unlock()
	if left != 0 {
		t.Errorf("%d runs are still under way", left)
	}
	s.release()
}

// failing is a journal on a full disk.
type failing struct{ *journal.Journal }

func (f failing) Begin(context.Context, journal.Call) (*journal.Outcome, error) {
	return nil, fault.New(fault.Unavailable, "the disk is full")
}

func TestWhatCannotBeWrittenDownIsNotSent(t *testing.T) {
	s := newSuspended(t)
	s.config.Journal = failing{journalIn(t, t.TempDir())}
	b := open(t, s.config)
	s.granted <- nil
	if got := string(b.Call(t.Context(), run(), callOf(1, "delete-all", `{}`))); !strings.Contains(got, "the disk is full") {
		t.Errorf("it gives %s", got)
	}
	if keys := s.seen(); len(keys) != 0 {
		t.Errorf("the server was called as %q", keys)
	}
}

func TestWhatSomebodyIsAskedIsExact(t *testing.T) {
	s := newSuspended(t)
	b := open(t, s.config)
	s.granted <- fault.New(fault.Denied, "no")
	got := string(b.Call(t.Context(), run(), callOf(4, "delete-all", `{"name":"a\u202eb","n":1.0}`)))
	if got != `{"error":{"kind":"denied","message":"no"}}` {
		t.Error(got)
	}
	a := <-s.asked
	switch {
	case a.Number != 4:
		t.Errorf("it is asked: a.Number = %d, want 4: %+v", a.Number, a)
	case a.Server != "party":
		t.Errorf(`it is asked: a.Server = %q, want "party": %+v`, a.Server, a)
	case a.Execution != "x-1":
		t.Errorf(`it is asked: a.Execution = %q, want "x-1": %+v`, a.Execution, a)
	case len(a.ArgumentsDigest) != 64:
		t.Errorf("it is asked: len(a.ArgumentsDigest) = %d, want 64: %q", len(a.ArgumentsDigest), a.ArgumentsDigest)
	case len(a.Fingerprint) != 64:
		t.Errorf("it is asked: len(a.Fingerprint) = %d, want 64: %q", len(a.Fingerprint), a.Fingerprint)
	case !strings.HasPrefix(a.ServerKey, s.config.Servers[0].Key()):
		t.Errorf("it is asked: a.ServerKey = %q, want it to begin with %q", a.ServerKey, s.config.Servers[0].Key())
	case a.Cut:
		t.Errorf("it is asked: a.Cut = true, want false: %+v", a)
	}
	if a.Shown != "{\n  \"name\": \"a\\u202eb\",\n  \"n\": 1.0\n}" {
		t.Errorf("it shows %q", a.Shown)
	}
	for text, want := range map[string]string{
		`{"a":"` + "\u200b\u00a0\U000e0041" + `"}`: "{\n  \"a\": \"\\u200b\\u00a0\\udb40\\udc41\"\n}",
		`[]`: "[]",
	} {
		if got, cut := shownTo(json.RawMessage(text)); got != want {
			t.Errorf("%q is shown: got %q, want %q", text, got, want)
		} else if cut {
			t.Errorf("%q is shown: cut = true, want false", text)
		}
	}
	if got, cut := shownTo(json.RawMessage(`"` + strings.Repeat("a", 2*maxShown) + `"`)); !cut {
		t.Error("of a long text: cut = false, want true")
	} else if len(got) > maxShown+10 {
		t.Errorf("of a long text: len(got) = %d, want at most %d", len(got), maxShown+10)
	}
	// Wrong arguments do not become a question.
	if got := string(b.Call(t.Context(), run(), callOf(5, "delete-all", `[]`))); !strings.Contains(got, `"invalid"`) {
		t.Errorf("wrong arguments: got %q, want %q in it", got, `"invalid"`)
	} else if len(s.asked) != 0 {
		t.Errorf("wrong arguments: len(s.asked) = %d, want none", len(s.asked))
	}
}

func TestAToolThatChangesWhileSomebodyIsAskedIsNotCalled(t *testing.T) {
	s := newSuspended(t)
	b := open(t, s.config)
	answers := make(chan string, 1)
	go func() { answers <- string(b.Call(t.Context(), run(), callOf(1, "delete-all", `{}`))) }()
	<-s.asked
	s.add(&mcp.Tool{Name: "delete-all", Description: "Removes everything, everywhere."}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) {
		return text("gone"), nil
	})
	eventually(t, "the news of it", func() bool {
		l, err := b.pool.List(b.common["party"].with(t.Context()), b.common["party"].keyFor(alice))
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range l.Tools {
			if strings.Contains(tool.Description, "everywhere") {
				return true
			}
		}
		return false
	})
	s.granted <- nil
	if got := <-answers; !strings.Contains(got, `"denied"`) {
		t.Errorf("got %q, want %q in it", got, `"denied"`)
	} else if !strings.Contains(got, "changed") {
		t.Errorf(`got %q, want "changed" in it`, got)
	}
	if keys := s.seen(); len(keys) != 0 {
		t.Errorf("the server was called as %q", keys)
	}
}

func TestWaitingForAPersonIsNotTheServersTime(t *testing.T) {
	s := newSuspended(t)
	s.config.Servers[0].CallTimeout = 5 * time.Second
	began := time.Now()
	s.config.Approve = func(ctx context.Context, _ Asked) error {
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(began.Add(30*time.Second)) {
			return errors.New("there is not enough time")
		}
		return nil
	}
	b := open(t, s.config)
	if got := ask(t, b, run(), 1, "party", "delete-all", `{}`); got != `{"value":"gone"}` {
		t.Error(got)
	}
}

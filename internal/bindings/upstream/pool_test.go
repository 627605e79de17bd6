package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
)

// fake is a link of which calls are a function's.
type fake struct {
	*mux
	onCall func(ctx context.Context, r outgoing) (json.RawMessage, error)
	closed *atomic.Int32
}

func (f *fake) call(ctx context.Context, r outgoing) (json.RawMessage, error) {
	if r.method == "tools/list" {
		return json.RawMessage(`{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}},{"name":"again","annotations":{"idempotentHint":true}},{"name":"acts"}]}`), nil
	}
	return f.onCall(ctx, r)
}

func (f *fake) settle(string)                          {}
func (f *fake) listen(context.Context, outgoing) error { return errNoStream }

func (f *fake) close() error {
	f.fail(newProblem(Closed, true, nil, "closed"))
	if f.closed != nil {
		f.closed.Add(1)
	}
	return nil
}

// fakes make connections for a pool.
type fakes struct {
	onCall func(ctx context.Context, conn int, r outgoing) (json.RawMessage, error)
	dialed atomic.Int32
	closed atomic.Int32
	last   atomic.Pointer[fake]
}

var fine = json.RawMessage(`{"content":[]}`)

func (f *fakes) dial(context.Context, Key) (*Conn, error) {
	n := int(f.dialed.Add(1))
	c := newConn(Server{Name: "fake"}, Options{})
	c.era = Legacy
	l := &fake{mux: newMux(c.handleNotification, nil), closed: &f.closed}
	l.onCall = func(ctx context.Context, r outgoing) (json.RawMessage, error) {
		if f.onCall == nil {
			return fine, nil
		}
		return f.onCall(ctx, n, r)
	}
	c.link = l
	f.last.Store(l)
	_, err := c.Tools(context.Background())
	return c, err
}

func pool(t *testing.T, f *fakes, config PoolConfig) *Pool {
	config.Dial = f.dial
	p := NewPool(config)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closed: got error %v, want none", err)
		} else if f.closed.Load() != f.dialed.Load() {
			t.Errorf("closed: f.closed = %d, want %d", f.closed.Load(), f.dialed.Load())
		}
	})
	return p
}

var here = Key{Session: "s", Server: "v"}

func TestAConnectionIsKeptWhileItIsUsedAndClosedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := pool(t, f, PoolConfig{})
		for range 5 {
			if _, err := p.Call(t.Context(), here, "acts", nil, CallOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(DefaultIdle - time.Second)
		}
		if f.dialed.Load() != 1 {
			t.Errorf("f.dialed = %d, want 1", f.dialed.Load())
		} else if f.closed.Load() != 0 {
			t.Errorf("f.closed = %d, want 0", f.closed.Load())
		}
		time.Sleep(DefaultIdle/10 + 2*time.Second)
		synctest.Wait()
		if f.closed.Load() != 1 {
			t.Error("it was not closed")
		}
		if _, err := p.Tools(t.Context(), here); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if f.dialed.Load() != 2 {
			t.Errorf("f.dialed = %d, want 2", f.dialed.Load())
		}
	})
}

func TestAConnectionWithALongCallIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{onCall: func(ctx context.Context, _ int, _ outgoing) (json.RawMessage, error) {
			time.Sleep(3 * DefaultIdle)
			return fine, ctx.Err()
		}}
		p := pool(t, f, PoolConfig{})
		if _, err := p.Call(t.Context(), here, "acts", nil, CallOptions{Timeout: 4 * DefaultIdle}); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if f.closed.Load() != 0 {
			t.Errorf("f.closed = %d, want 0", f.closed.Load())
		}
	})
}

func TestCallsBeginAnIntervalApart(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{0: 0, 100 * time.Millisecond: 900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := pool(t, &fakes{}, PoolConfig{Interval: interval})
			began := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if _, err := p.Call(t.Context(), here, "acts", nil, CallOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took != want {
				t.Errorf("with %v between them they took %v", interval, took)
			}
		})
	}
}

func TestSoManyCallsOfAllSessionsBeginWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rate := pool(t, &fakes{}, PoolConfig{}), NewRate(3)
		there := Key{Session: "another", Server: here.Server}
		gaveUp, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var after []time.Duration
		var mu sync.Mutex
		call := func(ctx context.Context, key Key) {
			_, err := p.Call(ctx, key, "acts", nil, CallOptions{Rate: rate})
			mu.Lock()
			defer mu.Unlock()
			if after = append(after, time.Since(began)); (err != nil) != (ctx.Err() != nil) {
				t.Errorf("got error %v, want one only after the end of the context: %v", err, ctx.Err())
			} else if Sent(err) {
				t.Errorf("Sent(err) = true, want false: %v", err)
			}
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { call(t.Context(), []Key{here, there}[i%2]) })
		}
		synctest.Wait()
		for range 3 {
			all.Go(func() { call(gaveUp, there) })
		}
		synctest.Wait()
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		for range 3 {
			all.Go(func() { call(t.Context(), here) })
		}
		all.Wait()
		want := []time.Duration{0, 0, 0, time.Second, time.Second, time.Second, time.Minute, time.Minute, time.Minute, 2 * time.Minute}
		if !slices.Equal(after, want) {
			t.Errorf("they ended after %v, want %v: three in a minute, and those that were given up count for nothing", after, want)
		}
	})
}

func TestSoManyCallsAreUnderWayAtATimeAndOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		f := &fakes{onCall: func(context.Context, int, outgoing) (json.RawMessage, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return fine, nil
		}}
		p := pool(t, f, PoolConfig{Concurrent: 3})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = p.Call(t.Context(), here, "acts", nil, CallOptions{}) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.Call(ctx, here, "acts", nil, CallOptions{}); ReasonOf(err) != TimedOut {
			t.Errorf("who does not wait: got an error of the reason %q, want %q: %v", ReasonOf(err), TimedOut, err)
		} else if Sent(err) {
			t.Errorf("who does not wait: Sent(err) = true, want false: %v", err)
		}
		if all.Wait(); most.Load() != 3 {
			t.Errorf("%d were under way", most.Load())
		}
	})
}

func TestOnlyWhatDoesNoHarmIsRepeated(t *testing.T) {
	unsent, unknown, answered := newProblem(Closed, false, nil, "x"), newProblem(Closed, true, nil, "x"), &problem{reason: Refused, sent: true, answered: true}
	for name, c := range map[string]struct {
		tool  string
		err   *problem
		allow bool
		calls int32
	}{
		"nothing was sent":                        {"acts", unsent, false, 2},
		"the session was forgotten":               {"acts", newProblem(SessionGone, false, nil, "x"), false, 2},
		"it is not known, and the tool acts":      {"acts", unknown, true, 1},
		"it is not known, and no one allowed it":  {"reads", unknown, false, 1},
		"it is not known, and the tool reads":     {"reads", unknown, true, 2},
		"it is not known, and the tool repeats":   {"again", unknown, true, 2},
		"it is not known, and the tool is new":    {"other", unknown, true, 1},
		"the server answered":                     {"reads", answered, true, 1},
		"it took too long":                        {"reads", newProblem(TimedOut, true, nil, "x"), true, 1},
		"there were too many, and it may be soon": {"reads", newProblem(Unreachable, false, nil, "x"), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				f := &fakes{}
				f.onCall = func(_ context.Context, n int, _ outgoing) (json.RawMessage, error) {
					calls.Add(1)
					if n == 1 && calls.Load() == 1 {
						f.last.Load().fail(c.err)
						return nil, c.err
					}
					return fine, nil
				}
				p := pool(t, f, PoolConfig{})
				_, err := p.Call(t.Context(), here, c.tool, nil, CallOptions{Repeatable: c.allow})
				if calls.Load() != c.calls {
					t.Errorf("it was called %d times, want %d", calls.Load(), c.calls)
				} else if (err == nil) != (c.calls == 2) {
					t.Errorf("it ended with %v, want success: %v", err, c.calls == 2)
				}
			})
		})
	}
}

func TestACrashLoopIsBounded(t *testing.T) {
	file := temp(t, "count")
	s := played(t, "crashes", "COUNT="+file)
	p := NewPool(PoolConfig{Dial: func(ctx context.Context, _ Key) (*Conn, error) {
		return Dial(ctx, s, Options{Eras: legacyOnly{}})
	}})
	defer p.Close()
	var last error
	for range 50 {
		_, last = p.Call(t.Context(), here, "do", nil, CallOptions{})
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("reading how often it was started: got error %v, want none", err)
	} else if len(data) > 20 { // it starts, and is probed once it does not behave
		t.Errorf("it was started %d times, want at most 20", len(data))
	}
	switch f := fault.Of(last); {
	case ReasonOf(last) != Resting:
		t.Errorf("the last error: ReasonOf(last) = %v, want %v: %v", ReasonOf(last), Resting, last)
	case f.RetryAfter <= 0:
		t.Errorf("the last error: f.RetryAfter = %v, want more than 0: %v", f.RetryAfter, last)
	case !f.Retryable():
		t.Errorf("the last error: f.Retryable() = false, want true: %v", last)
	}
}

func TestAServerIsTriedAgainAfterItsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		f := &fakes{}
		p := NewPool(PoolConfig{Dial: func(ctx context.Context, k Key) (*Conn, error) {
			if broken {
				return nil, &Error{Reason: Unreachable, err: fault.New(fault.Unavailable, "no")}
			}
			return f.dial(ctx, k)
		}})
		defer p.Close()
		tries := 0
		for range 600 {
			if _, err := p.Tools(t.Context(), here); ReasonOf(err) == Unreachable {
				tries++
			}
			time.Sleep(time.Second)
		}
		if tries < 10 || tries > 30 {
			t.Errorf("in ten minutes it was tried %d times, want from 10 to 30", tries)
		}
		broken = false
		time.Sleep(longestBackoff)
		if _, err := p.Tools(t.Context(), here); err != nil {
			t.Errorf("it is not back: %v", err)
		}
	})
}

func TestKeysShareNothingAndMakeRoomForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := pool(t, f, PoolConfig{Conns: 3})
		for _, k := range []Key{here, {Session: "t", Server: "v"}, {Session: "s", Server: "w"}, {Session: "s", Server: "v", Identity: "me"}} {
			if _, err := p.Info(t.Context(), k); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if f.dialed.Load() != 4 {
			t.Errorf("f.dialed = %d, want 4", f.dialed.Load())
		} else if f.closed.Load() != 1 {
			t.Errorf("f.closed = %d, want 1", f.closed.Load())
		}
		p.Drop(func(k Key) bool { return k.Session == "s" })
		synctest.Wait()
		if f.closed.Load() != 3 {
			t.Errorf("%d are closed after the session's end", f.closed.Load())
		}
	})
}

func TestAPoolThatIsFullOfBusyConnectionsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{onCall: func(ctx context.Context, _ int, _ outgoing) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p := pool(t, f, PoolConfig{Conns: 1})
		ended := make(chan error, 1)
		go func() {
			_, err := p.Call(t.Context(), here, "acts", nil, CallOptions{})
			ended <- err
		}()
		synctest.Wait()
		if _, err := p.Tools(t.Context(), Key{Session: "other"}); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("it ended with %v", err)
		}
		_ = p.Close()
		if err := <-ended; ReasonOf(err) != Closed {
			t.Errorf("the call: got an error of the reason %q, want %q: %v", ReasonOf(err), Closed, err)
		} else if !Sent(err) {
			t.Errorf("the call: Sent(err) = false, want true: %v", err)
		}
		if _, err := p.Call(t.Context(), here, "acts", nil, CallOptions{}); ReasonOf(err) != Closed {
			t.Errorf("a call after the end: got an error of the reason %q, want %q: %v", ReasonOf(err), Closed, err)
		} else if Sent(err) {
			t.Errorf("a call after the end: Sent(err) = true, want false: %v", err)
		}
	})
}

func TestAPoolThatIsClosedWhileItDialsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		var slow PoolConfig
		slow.Dial = func(ctx context.Context, k Key) (*Conn, error) {
			time.Sleep(time.Second) // and does not look at its context
			return f.dial(ctx, k)
		}
		p := NewPool(slow)
		ended := make(chan error, 1)
		go func() { _, err := p.Tools(t.Context(), here); ended <- err }()
		synctest.Wait()
		_ = p.Close()
		if err := <-ended; err == nil {
			t.Error("got no error, want one")
		} else if f.closed.Load() != 1 {
			t.Errorf("f.closed = %d, want 1", f.closed.Load())
		}
	})
}

func TestTheListIsAskedForAgainByItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(Server{Name: "fake"}, Options{})
		asked, ttl := 0, ""
		c.link = &listed{fake{mux: newMux(c.handleNotification, nil)}, func() string {
			asked++
			return `{"tools":[{"name":"a"}]` + ttl + `}`
		}}
		c.era = Legacy
		look := func() {
			if _, err := c.Tools(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for i, step := range []struct {
			wait  time.Duration
			ttl   string
			asked int
		}{{0, "", 1}, {defaultAge - 1, "", 1}, {1, `,"ttlMs":20000`, 2}, {19 * time.Second, "", 2}, {time.Second, `,"ttlMs":0`, 3}, {leastAge - 1, "", 3}, {1, `,"ttlMs":1e300`, 4}, {longestAge - 1, "", 4}, {1, "", 5}} {
			time.Sleep(step.wait)
			ttl = step.ttl
			if look(); asked != step.asked {
				t.Errorf("at step %d it was asked for %d times", i, asked)
			}
		}
		c.handleNotification(message{Method: "notifications/tools/list_changed"})
		if look(); asked != 6 {
			t.Error("a change was not noticed")
		}
		_ = c.Close()
	})
}

// listed is a link that has a list only.
type listed struct {
	fake
	list func() string
}

func (l *listed) call(context.Context, outgoing) (json.RawMessage, error) {
	return json.RawMessage(l.list()), nil
}

func TestAListThatIsTooLongOrNoneIsAnError(t *testing.T) {
	many := func(n int, more string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"t%d"}`, i))
		}
		return `{"tools":[` + strings.Join(all, ",") + `]` + more + `}`
	}
	for name, c := range map[string]struct {
		list   string
		reason Reason
	}{
		"5,001 tools":         {many(5001, ""), TooLarge},
		"going in circles":    {many(1, `,"nextCursor":"x"`), TooLarge},
		"a tool that is none": {`{"tools":[null]}`, Malformed},
		"a tool without name": {`{"tools":[{"description":"x"},{"name":""}]}`, Malformed},
		"5,001 of nothing":    {`{"tools":[{"name":"a"}` + strings.Repeat(",{}", 5000) + `]}`, TooLarge},
		"no list":             {`{"tools":{}}`, Malformed},
		"5,000 tools":         {many(5000, ""), ""},
		"nothing":             {`{}`, ""},
	} {
		conn := newConn(Server{Name: "fake"}, Options{})
		conn.log = logTo(discardAll{})
		conn.link = &listed{fake{mux: newMux(conn.handleNotification, nil)}, func() string { return c.list }}
		conn.era = Legacy
		_, err := conn.Tools(t.Context())
		var e *Error
		if errors.As(err, &e); ReasonOf(err) != c.reason {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
}

func TestAToolThatIsNoneKeepsNoOtherFromBeingCalled(t *testing.T) {
	var said bytes.Buffer
	conn := newConn(Server{Name: "fake"}, Options{})
	conn.log = logTo(&said)
	list := `{"tools":[{"name":"first","inputSchema":{}},{"description":"x"},{"name":5},null,7,{"name":"first"},{"name":"bare","title":3},
		{"name":"odd\u001b[31m","inputSchema":5},{"name":"out","outputSchema":"x"},{"name":"` + strings.Repeat("l", 2000) + `"},{"name":"last","inputSchema":true}`
	conn.link = &listed{fake{mux: newMux(conn.handleNotification, nil)}, func() string { return list + strings.Repeat(`,{"name":""}`, 5) + `]}` }}
	conn.era = Legacy
	for range 2 {
		l, err := conn.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range l.Tools {
			names = append(names, tool.Name)
		}
		if want := []string{"first", "bare", "last"}; !slices.Equal(names, want) {
			t.Errorf("its tools are %q, want %q", names, want)
		}
		text := strings.Join(l.LeftOut, "\n")
		for _, want := range []string{"number 2 of its list", "number 3 of", "number 4 of", "number 5 of", "first: there is another", "out: what it says", "lll", "more than 1024 bytes", "and 3 more"} {
			if !strings.Contains(text, want) {
				t.Errorf("it is not said that %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("text = %q, want no %q in it", text, "\x1b")
		} else if len(l.LeftOut) != maxLeftOut+1 {
			t.Errorf("len(l.LeftOut) = %d, want %d", len(l.LeftOut), maxLeftOut+1)
		}
	}
	if n := strings.Count(said.String(), "left out"); n != 1 {
		t.Errorf("the log says it %d times, want 1: %s", n, said.String())
	} else if !strings.Contains(said.String(), "number 2 of its list") {
		t.Errorf(`the log: said.String() = %q, want "number 2 of its list" in it`, said.String())
	}
	_ = conn.Close()
}

type discardAll struct{}

func (discardAll) Write(p []byte) (int, error) { return len(p), nil }

func TestACallWithALifeOfItsOwnOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, sent := make(chan struct{}), make(chan struct{}, 10)
		f := &fakes{onCall: func(ctx context.Context, _ int, _ outgoing) (json.RawMessage, error) {
			sent <- struct{}{}
			select {
			case <-release:
				return fine, nil
			case <-ctx.Done():
				return nil, asProblem(ctx.Err(), true)
			}
		}}
		p := pool(t, f, PoolConfig{Interval: time.Second, Concurrent: 1})
		ctx, cancel := context.WithCancel(t.Context())
		life, end := context.WithCancel(t.Context())
		defer end()
		first, second := make(chan error, 1), make(chan error, 1)
		call := func(to chan error) {
			_, err := p.Call(ctx, here, "acts", nil, CallOptions{Life: life})
			to <- err
		}
		go call(first)
		<-sent
		go call(second)
		synctest.Wait()
		cancel()
		// Who had not got his turn is not sent any more; what was sent goes on.
		if err := <-second; err == nil {
			t.Error("the one that waited: got no error, want one")
		} else if Sent(err) {
			t.Errorf("the one that waited: Sent(err) = true, want false: %v", err)
		}
		synctest.Wait()
		select {
		case err := <-first:
			t.Fatalf("the one that was sent has ended: %v", err)
		default:
		}
		close(release)
		if err := <-first; err != nil {
			t.Errorf("the one that was sent: %v", err)
		}
		if len(sent) != 0 {
			t.Error("a call was sent for who had gone")
		}
		third := make(chan error, 1)
		release = make(chan struct{})
		ctx = t.Context()
		time.Sleep(time.Second)
		go call(third)
		<-sent
		end()
		if err := <-third; ReasonOf(err) != Cancelled {
			t.Errorf("a call whose life has ended: got an error of the reason %q, want %q: %v",
				ReasonOf(err), Cancelled, err)
		} else if !Sent(err) {
			t.Errorf("a call whose life has ended: Sent(err) = false, want true: %v", err)
		}
	})
}

func TestSomebodyIsToldThatAListIsSpoiled(t *testing.T) {
	told := 0
	c := newConn(Server{Name: "fake"}, Options{Changed: func() { told++ }})
	c.log = logTo(discardAll{})
	c.link = &listed{fake{mux: newMux(c.handleNotification, nil)}, func() string { return `{"tools":[{"name":"a"}],"ttlMs":60000}` }}
	c.era = Legacy
	l, err := c.List(t.Context())
	switch left := time.Until(l.Until); {
	case err != nil:
		t.Error(err)
	case len(l.Tools) != 1:
		t.Errorf("len(l.Tools) = %d, want 1: %+v", len(l.Tools), l.Tools)
	case left < 50*time.Second:
		t.Errorf("left = %v, want at least %v: %+v, %d", left, 50*time.Second, l, told)
	case left > time.Minute:
		t.Errorf("left = %v, want at most %v: %+v, %d", left, time.Minute, l, told)
	case told != 0:
		t.Errorf("told = %v, want 0: %+v", told, l)
	}
	c.handleNotification(message{Method: "notifications/tools/list_changed"})
	c.handleNotification(message{Method: "notifications/message"})
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
	_ = c.Close()
}

package limit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
)

func gate(t testing.TB, c Config) *Gate {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// wantExhausted checks a refusal: what it names, and that it says when to try again.
func wantExhausted(t *testing.T, err error, limit string) time.Duration {
	t.Helper()
	f := fault.Of(err)
	switch {
	case f == nil:
		t.Fatalf("no fault, want one: %s", limit)
	case f.Kind != fault.Exhausted:
		t.Fatalf("f.Kind = %v, want %v: %+v, %s", f.Kind, fault.Exhausted, f, limit)
	case f.RetryAfter <= 0:
		t.Fatalf("f.RetryAfter = %v, want more than 0: %+v, %s", f.RetryAfter, f, limit)
	case !strings.Contains(f.Hint, "the operator can raise"):
		t.Fatalf(`f.Hint = %q, want "the operator can raise" in it`, f.Hint)
	case !strings.Contains(f.Hint, limit):
		t.Fatalf("f.Hint = %q, want %q in it", f.Hint, limit)
	}
	return f.RetryAfter
}

func TestEveryLimitHasADefault(t *testing.T) {
	c := gate(t, Config{}).config
	switch {
	case c.TotalExecutions != max(2, 2*runtime.NumCPU()):
		t.Errorf("%d of: c.TotalExecutions = %v, want %v",
			c.Executions, c.TotalExecutions, max(2, 2*runtime.NumCPU()))
	case c.Executions < 1:
		t.Errorf("%d of: c.Executions = %v, want at least 1: %d",
			c.Executions, c.Executions, c.TotalExecutions)
	case c.Executions >= c.TotalExecutions:
		t.Errorf("%d of: c.Executions = %v, want less than %v",
			c.Executions, c.Executions, c.TotalExecutions)
	}
	for _, n := range []int{c.Requests, c.TotalRequests, c.Concurrent, c.TotalConcurrent, c.Queue, c.TotalQueue, int(c.Window), int(c.Wait)} {
		if n <= 0 {
			t.Errorf("the defaults are %+v", c)
		}
	}
	if _, err := New(Config{Queue: -1}); err == nil {
		t.Error("a negative limit is accepted")
	}
}

func TestRequestsOfAPrincipalAreCountedAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{Requests: 10, Window: 10 * time.Second, TotalRequests: 15})
		for range 10 {
			if err := g.Request("a"); err != nil {
				t.Fatal(err)
			}
		}
		if wait := wantExhausted(t, g.Request("a"), "rate_limit_requests"); wait != time.Second {
			t.Errorf("to be tried again in %v, want 1s", wait)
		}
		for range 5 {
			if err := g.Request("b"); err != nil {
				t.Fatalf("another principal: %v", err)
			}
		}
		wait := wantExhausted(t, g.Request("b"), "limits.max_requests")
		time.Sleep(wait)
		if err := g.Request("b"); err != nil {
			t.Errorf("after the time that was told: %v", err)
		}
	})
}

func TestARefusedRequestCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{Requests: 2, Window: 2 * time.Second})
		for range 100 {
			_ = g.Request("a")
		}
		time.Sleep(time.Second)
		if err := g.Request("a"); err != nil {
			t.Errorf("a flood delays its own end: %v", err)
		}
	})
}

func TestRequestsInHandAreBounded(t *testing.T) {
	g := gate(t, Config{Concurrent: 2, TotalConcurrent: 3})
	var held []func()
	for _, name := range []string{"a", "a", "b"} {
		release, err := g.Hold(name)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	_, err := g.Hold("a")
	wantExhausted(t, err, "transport_http.max_concurrent_requests")
	_, err = g.Hold("b")
	wantExhausted(t, err, "limits.max_concurrent_requests")
	held[0]()
	held[0]() // counts once
	release, err := g.Hold("b")
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Hold("a")
	wantExhausted(t, err, "limits.max_concurrent_requests")
	for _, f := range append(held, release) {
		f()
	}
	if l := g.Load(); l != (Load{}) {
		t.Errorf("the load is %+v in the end", l)
	}
}

func TestStreamsHaveALimitOfTheirOwn(t *testing.T) {
	g := gate(t, Config{Concurrent: 1, TotalConcurrent: 1, Streams: 2, TotalStreams: 3})
	var held []func()
	for _, name := range []string{"a", "a", "b"} {
		release, err := g.Listen(name)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	_, err := g.Listen("a")
	wantExhausted(t, err, "limits.max_streams_per_client")
	_, err = g.Listen("b")
	wantExhausted(t, err, "limits.max_streams")
	request, err := g.Hold("a")
	if err != nil {
		t.Fatalf("who listens cannot call: %v", err)
	}
	request()
	if l := g.Load(); l != (Load{Streams: 3}) {
		t.Errorf("the load is %+v", l)
	}
	for _, release := range held {
		release()
		release() // counts once
	}
	if l := g.Load(); l != (Load{}) || g.idle.Len() != 2 {
		t.Errorf("the load is %+v in the end, and %d principals are idle", l, g.idle.Len())
	}
}

func TestIdlePrincipalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalRequests: 1 << 30})
		leave, err := g.Enter(t.Context(), "busy")
		if err != nil {
			t.Fatal(err)
		}
		for k := range 3 * maxIdle {
			if err := g.Request(fmt.Sprint(k)); err != nil {
				t.Fatal(err)
			}
			if n := len(g.principals); n > maxIdle+1 {
				t.Fatalf("%d principals are remembered", n)
			}
		}
		time.Sleep(g.config.Window)
		for range maxIdle {
			_ = g.Request("one")
		}
		if n := len(g.principals); n != 2 {
			t.Errorf("%d principals are remembered after a rest, want 2", n)
		}
		leave()
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalExecutions: 1, Executions: 1, Queue: 2, TotalQueue: 3, Wait: time.Minute})
		leave, err := g.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 3)
		wait := func(name string) {
			go func() {
				leave, err := g.Enter(t.Context(), name)
				if err == nil {
					leave()
				}
				errs <- err
			}()
			synctest.Wait()
		}
		wait("a")
		wait("a")
		_, err = g.Enter(t.Context(), "a")
		wantExhausted(t, err, "max_queued_executions_per_client")
		wait("b")
		_, err = g.Enter(t.Context(), "c")
		wantExhausted(t, err, "limits.max_queued_executions")
		if l := g.Load(); l != (Load{Running: 1, Waiting: 3}) {
			t.Errorf("the load is %+v", l)
		}
		time.Sleep(time.Minute)
		for range 3 {
			wantExhausted(t, <-errs, "limits.max_queue_seconds")
		}
		leave()
		if l := g.Load(); l != (Load{}) {
			t.Errorf("the load is %+v in the end", l)
		}
	})
}

func TestAWaiterLeavesAtOnceWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalExecutions: 1})
		leave, err := g.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() { _, err := g.Enter(ctx, "b"); got <- err }()
		synctest.Wait()
		began := time.Now()
		cancel(enough)
		if err := <-got; !errors.Is(err, enough) || time.Since(began) != 0 {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		if _, err := g.Enter(ctx, "b"); !errors.Is(err, enough) {
			t.Errorf("an ended context: %v", err)
		}
		leave()
		if l := g.Load(); l != (Load{}) {
			t.Errorf("the load is %+v in the end", l)
		}
		if leave, err = g.Enter(t.Context(), "b"); err != nil {
			t.Fatalf("the slot was lost: %v", err)
		}
		leave()
	})
}

func TestPrincipalsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalExecutions: 1, Executions: 1})
		leave, err := g.Enter(t.Context(), "z")
		if err != nil {
			t.Fatal(err)
		}
		var order []string // of the one at a time who has the slot
		var all sync.WaitGroup
		for _, name := range strings.Split("a1 a2 a3 a4 b1 b2 c1", " ") {
			all.Go(func() {
				leave, err := g.Enter(t.Context(), name[:1])
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				leave()
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		if want := strings.Split("a1 b1 c1 a2 b2 a3 a4", " "); !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
	})
}

// latency gives the longest that one of a principal's executions, a second
// each and one after the other, takes while floods of others go on.
func latency(t *testing.T, c Config, floods, each int) (longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		run := func(name string) error {
			leave, err := g.Enter(ctx, name)
			if err != nil {
				return err
			}
			defer leave()
			time.Sleep(time.Second)
			return nil
		}
		for f := range floods {
			for range each {
				all.Go(func() {
					for run(fmt.Sprint("flood", f)) == nil {
					}
				})
			}
		}
		synctest.Wait()
		for range 20 {
			began := time.Now()
			if err := run("victim"); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(began))
		}
	})
	return longest
}

func TestAFloodLeavesTheLatencyOfOthersWithinTwice(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		floods int
		want   time.Duration
	}{
		"nobody else is there":                        {Config{TotalExecutions: 4}, 0, time.Second},
		"one flood takes no more than its share":      {Config{TotalExecutions: 4}, 1, time.Second},
		"one flood that may take everything":          {Config{TotalExecutions: 4, Executions: 4}, 1, 2 * time.Second},
		"two floods, whose shares are everything":     {Config{TotalExecutions: 4}, 2, 2 * time.Second},
		"a single slot":                               {Config{TotalExecutions: 1}, 1, 2 * time.Second},
		"four slots and three floods of any one size": {Config{TotalExecutions: 4, Executions: 4}, 3, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := latency(t, c.config, c.floods, 100); got > c.want {
				t.Errorf("an execution of 1s took %v, want %v at most", got, c.want)
			}
		})
	}
}

func TestAGateUnderManyAtOnceKeepsItsBoundsAndEndsEmpty(t *testing.T) {
	const slots, share = 4, 3
	g := gate(t, Config{TotalExecutions: slots, Executions: share, TotalRequests: 1 << 30})
	var all sync.WaitGroup
	for k := range 64 {
		all.Go(func() {
			for n := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if (k+n)%3 == 0 {
					go cancel() // somewhere on its way
				}
				leave, err := g.Enter(ctx, fmt.Sprint(k%5))
				switch l := g.Load(); {
				case l.Running > slots:
					t.Errorf("the load: l.Running = %v, want at most %v: %+v", l.Running, slots, l)
				case l.Running < 0:
					t.Errorf("the load: l.Running = %v, want at least 0: %+v", l.Running, l)
				case l.Waiting < 0:
					t.Errorf("the load: l.Waiting = %v, want at least 0: %+v", l.Waiting, l)
				}
				if err == nil {
					leave()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if l := g.Load(); l != (Load{}) || g.quick.Len()+g.slow.Len() != 0 {
		t.Errorf("the load is %+v, %d turns are left", l, g.quick.Len()+g.slow.Len())
	}
}

func TestTheMachineHasMemory(t *testing.T) {
	if n := MachineMemory(); n < 16<<20 {
		t.Errorf("%d bytes", n)
	}
}

// Four principals whose programs run for 40 s keep one out whose programs run for 10 ms at
// most until the first of them has ended.
func TestLongProgramsDoNotKeepBriefOnesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalExecutions: 4, Executions: 2})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		run := func(name string, long time.Duration) error {
			leave, err := g.Enter(ctx, name)
			if err != nil {
				return err
			}
			defer leave()
			time.Sleep(long)
			return nil
		}
		for n := range 16 {
			all.Go(func() {
				for {
					if err := run(fmt.Sprint("long", n%4), 40*time.Second); err != nil && ctx.Err() != nil {
						return
					}
				}
			})
		}
		synctest.Wait()
		for n := range 1000 {
			began := time.Now()
			if err := run("brief", 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second && n > 0 || took > 41*time.Second {
				t.Fatalf("the %d. brief program took %v", n+1, took)
			}
			if running := g.Load().Running; running > 4 {
				t.Fatalf("%d run at once", running)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestWhoseProgramsAreBriefAgainIsServedLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, Config{TotalExecutions: 2, Executions: 2})
		enter := func() (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return g.Enter(ctx, "a")
		}
		leave, err := enter()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := enter(); err == nil {
			t.Error("the place for brief programs is given to one whose program runs for long")
		}
		leave()
		time.Sleep(5*time.Minute + time.Second)
		for range 2 {
			if _, err := enter(); err != nil {
				t.Errorf("minutes later: %v", err)
			}
		}
	})
}

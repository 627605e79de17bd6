package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// asked is what a program's call says.
type asked struct {
	Op, Server, Tool string
	Arguments        struct{ Text string }
}

// answers is a host that answers each call with what f gives, as a value.
func answers(t *testing.T, f func(ctx context.Context, number int, a asked) string) func(context.Context, sandbox.Call) []byte {
	return func(ctx context.Context, c sandbox.Call) []byte {
		var a asked
		if err := json.Unmarshal(c.Body, &a); err != nil || a.Op != "call" || a.Server != "s" {
			t.Errorf("the host was asked %.200q: %v", c.Body, err)
		}
		text, err := json.Marshal(map[string]string{"value": f(ctx, c.Number, a)})
		if err != nil {
			t.Error(err)
		}
		return text
	}
}

func (k *kit) testCalls(t *testing.T) {
	if k.Call == nil {
		t.Skip("the language cannot call tools")
	}
	in := k.start(t, k.beside())
	prints := func(t *testing.T, src, want string, host func(context.Context, sandbox.Call) []byte) {
		t.Helper()
		o := run(t, in, sandbox.Command{Code: src, Call: host})
		if got := strings.TrimSpace(o.stdout); got != want || o.Error != nil {
			t.Errorf("it printed %.200q, want %.200q (error %+v)", got, want, o.Error)
		}
	}
	t.Run("the host answers, and counts the calls of each run", func(t *testing.T) {
		host := answers(t, func(_ context.Context, number int, a asked) string {
			return fmt.Sprint(number, " ", a.Tool, " ", a.Arguments.Text)
		})
		prints(t, lines(k.Call("echo", "one"), k.Call("other-tool", "two")), "1 echo one\n2 other-tool two", host)
		prints(t, k.Call("echo", "three"), "1 echo three", host)
	})
	t.Run("without an answer the program gets an error", func(t *testing.T) {
		for name, host := range map[string]func(context.Context, sandbox.Call) []byte{
			"there is no host": nil,
			"it says nothing":  func(context.Context, sandbox.Call) []byte { return nil },
			"it says too much": func(context.Context, sandbox.Call) []byte {
				return []byte(`"` + strings.Repeat("x", sandbox.MaxAnswer) + `"`)
			},
		} {
			if name != "there is no host" && k.CallMany == nil {
				continue // the fake's host is always right
			}
			o := run(t, in, sandbox.Command{Code: k.Call("echo", "x"), Call: host})
			if !strings.HasPrefix(o.stdout, "unavailable ") {
				t.Errorf("%s: it printed %q, error %+v", name, o.stdout, o.Error)
			}
		}
	})
	t.Run("an error is the program's to catch", func(t *testing.T) {
		prints(t, k.Call("echo", "x"), "denied not this one", func(context.Context, sandbox.Call) []byte {
			return []byte(`{"error":{"kind":"denied","message":"not this one"}}`)
		})
	})
	t.Run("what is large goes both ways", func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 1<<14)
		prints(t, k.Call("echo", text), "back "+text, answers(t, func(_ context.Context, _ int, a asked) string { return "back " + a.Arguments.Text }))
	})
	k.testCallsAtOnce(t, in, prints)
	k.testCallsThatWait(t, in, prints)
}

type printsFunc func(t *testing.T, src, want string, host func(context.Context, sandbox.Call) []byte)

func (k *kit) testCallsAtOnce(t *testing.T, in sandbox.Instance, prints printsFunc) {
	if k.CallMany == nil {
		return
	}
	t.Run("calls at once are answered side by side", func(t *testing.T) {
		const n = 20
		var all sync.WaitGroup
		all.Add(n)
		prints(t, k.CallMany("double", n), fmt.Sprint(n*(n-1)/2), answers(t, func(ctx context.Context, _ int, a asked) string {
			all.Done()
			all.Wait() // none is answered before the last one has come
			return a.Arguments.Text
		}))
	})
	t.Run("of very many only some are under way", func(t *testing.T) {
		const n = 5 * sandbox.CallsAtOnce
		var mu sync.Mutex
		now, most := 0, 0
		count := func(d int) {
			mu.Lock()
			defer mu.Unlock()
			now += d
			most = max(most, now)
		}
		prints(t, k.CallMany("echo", n), fmt.Sprint(n*(n-1)/2), answers(t, func(_ context.Context, _ int, a asked) string {
			count(1)
			defer count(-1)
			return a.Arguments.Text
		}))
		if most > sandbox.CallsAtOnce {
			t.Errorf("%d were under way", most)
		}
	})
	if k.CallFor == nil {
		return
	}
	t.Run("a call that is given up ends at the host", func(t *testing.T) {
		ended := make(chan struct{})
		prints(t, k.CallFor("slow", 0.05), "given up", answers(t, func(ctx context.Context, _ int, _ asked) string {
			select {
			case <-ctx.Done():
			case <-time.After(timeout):
				t.Error("it was not given up")
			}
			close(ended)
			return "too late"
		}))
		await(t, "the end of the call", ended)
		prints(t, k.Call("echo", "x"), "x", answers(t, func(_ context.Context, _ int, a asked) string { return a.Arguments.Text }))
	})
}

func (k *kit) testCallsThatWait(t *testing.T, in sandbox.Instance, prints printsFunc) {
	t.Run("a program that waits for a call is interrupted, and goes on afterwards", func(t *testing.T) {
		works(t, in, k.Set("kept", 42), "")
		for name, src := range map[string]string{"one": k.Call("slow", "x"), "many": k.many(3)} {
			ctx, cancel := context.WithCancel(t.Context())
			var over sync.WaitGroup
			o := runIn(ctx, t, in, sandbox.Command{Code: src, Call: answers(t, func(ctx context.Context, _ int, _ asked) string {
				over.Add(1)
				defer over.Done()
				cancel()
				<-ctx.Done()
				return "too late"
			})})
			over.Wait() // it has ended already: Run has returned
			cancel()
			if o.Cause != sandbox.Cancelled {
				t.Errorf("%s: it %v, want %v", name, o.Cause, sandbox.Cancelled)
			}
			if o.State != sandbox.Kept {
				t.Errorf("%s: its state is %v, want %v", name, o.State, sandbox.Kept)
			}
			if strings.Contains(o.stdout, "too late") {
				t.Errorf("%s: it printed an answer that came too late: %q", name, o.stdout)
			}
		}
		works(t, in, k.Show("kept"), "42")
		prints(t, k.Call("echo", "next"), "next", answers(t, func(_ context.Context, number int, a asked) string {
			if number != 1 {
				t.Errorf("it is the call number %d", number)
			}
			return a.Arguments.Text
		}))
	})
	t.Run("closing an instance ends its calls", func(t *testing.T) {
		other := k.start(t, k.beside())
		asked, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_, err := other.Run(t.Context(), sandbox.Command{Code: k.Call("slow", "x"), Call: func(ctx context.Context, _ sandbox.Call) []byte {
				close(asked)
				<-ctx.Done()
				return nil
			}})
			if err == nil {
				t.Error("the run ended well")
			}
		}()
		await(t, "the call", asked)
		other.Close()
		await(t, "the run's end", ended)
	})
}

func (k *kit) many(n int) string {
	if k.CallMany == nil {
		return k.Call("slow", "x")
	}
	return k.CallMany("slow", n)
}

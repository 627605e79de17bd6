package broker

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/bindings/upstream"
)

// Each state of an entry, with what a caller may expect of it. Times are relative to now; a
// zero is a zero time.
func TestWhenAServerIsListedAndWaitedFor(t *testing.T) {
	const wait, waitChanged = timeout, changedTimeout
	for name, c := range map[string]struct {
		listed      bool
		until       time.Duration // when the listing expires
		invalidated time.Duration
		began       time.Duration
		took        time.Duration
		fails       int
		retryAt     time.Duration
		slow        time.Duration
		running     bool
		age         time.Duration // of the Broker
		eager       bool

		freshness freshness
		starts    bool
		waits     time.Duration // once the attempt is under way
	}{
		"never listed":                          {freshness: missing, starts: true, waits: wait},
		"never listed, being listed":            {running: true, freshness: missing, waits: wait},
		"never listed, it failed just now":      {fails: 1, retryAt: time.Second, slow: time.Second, freshness: missing},
		"never listed, it failed before":        {fails: 1, retryAt: -1, slow: -1, freshness: missing, starts: true, waits: wait},
		"never listed, slow":                    {slow: time.Minute, freshness: missing, starts: true},
		"never listed, slow, for who asks":      {slow: time.Minute, eager: true, freshness: missing, starts: true, waits: wait},
		"never listed, failed, for who asks":    {retryAt: time.Second, slow: time.Second, eager: true, freshness: missing, waits: wait},
		"never listed, and it says it changed":  {invalidated: -1, freshness: missing, starts: true, waits: wait},
		"fresh":                                 {listed: true, until: time.Minute, age: time.Hour, freshness: fresh},
		"fresh, for who asks":                   {listed: true, until: time.Minute, age: time.Hour, eager: true, freshness: fresh},
		"fresh, being listed":                   {listed: true, until: time.Minute, running: true, freshness: fresh},
		"expired this instant":                  {listed: true, until: 0, age: time.Hour, freshness: expired, starts: true},
		"expired":                               {listed: true, until: -time.Minute, age: time.Hour, freshness: expired, starts: true},
		"expired, in a short run":               {listed: true, until: -time.Minute, age: settled - 1, freshness: expired},
		"expired, when the Broker has settled":  {listed: true, until: -time.Minute, age: settled, freshness: expired, starts: true},
		"expired long ago, in a short run":      {listed: true, until: -tooOld, freshness: expired, starts: true},
		"expired, in a short run, for who asks": {listed: true, until: -time.Minute, eager: true, freshness: expired, starts: true},
		"expired, it failed just now":           {listed: true, until: -time.Minute, age: time.Hour, fails: 1, retryAt: time.Second, freshness: expired},
		"changed":                               {listed: true, until: time.Minute, invalidated: -1, began: -time.Hour, took: time.Second, freshness: changed, starts: true, waits: waitChanged},
		"changed, in a short run":               {listed: true, until: -time.Minute, invalidated: -1, freshness: changed, starts: true, waits: waitChanged},
		"changed, and listed all the time":      {listed: true, until: time.Minute, invalidated: -1, began: -20 * time.Second, took: time.Second, freshness: changed, waits: waitChanged},
		"changed, listed enough before":         {listed: true, until: time.Minute, invalidated: -1, began: -20*time.Second - 1, took: time.Second, freshness: changed, starts: true, waits: waitChanged},
		"changed and expired":                   {listed: true, until: -time.Minute, invalidated: -1, began: -20 * time.Second, took: time.Second, freshness: changed, starts: true, waits: waitChanged},
		"changed a while ago":                   {listed: true, until: time.Minute, invalidated: -changedFor, freshness: changed, starts: true},
		"changed, and it fails":                 {listed: true, until: time.Minute, invalidated: -1, fails: 1, retryAt: -1, freshness: changed, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			at := func(d time.Duration) time.Time {
				if d == 0 {
					return time.Time{}
				}
				return now.Add(d)
			}
			e := &cacheEntry{invalidated: at(c.invalidated), began: at(c.began), took: c.took, fails: c.fails, retryAt: at(c.retryAt), slow: at(c.slow)}
			if c.listed {
				e.listing, e.until = &listing{}, now.Add(c.until)
			}
			if c.running {
				e.running = make(chan struct{})
			}
			if got := e.freshnessLocked(now); got != c.freshness {
				t.Errorf("the listing is in the state %d, want %d", got, c.freshness)
			}
			if got := e.deadlineLocked(now, timeout, c.eager); !c.running && !got.IsZero() {
				t.Errorf("without an attempt it is waited for until %v, want not at all", got)
			}
			if got := e.startsLocked(now, now.Add(-c.age), c.eager); got != c.starts {
				t.Errorf("an attempt begins: %v, want %v", got, c.starts)
			}
			e.running = make(chan struct{})
			if got, want := e.deadlineLocked(now, timeout, c.eager), at(c.waits); !got.Equal(want) {
				t.Errorf("with an attempt it is waited for until %v, want %v", got, want)
			}
			if e.startsLocked(now, now.Add(-c.age), c.eager) {
				t.Error("a second attempt begins beside the first")
			}
		})
	}
}

// unreachable counts the instants at which a server is asked for something, which fails.
type unreachable struct {
	mu    sync.Mutex
	asked []time.Time
}

func (u *unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); len(u.asked) == 0 || now.After(u.asked[len(u.asked)-1]) {
		u.asked = append(u.asked, now)
	}
	return nil, errors.New("it is not there")
}

// A server that fails is left alone for twice as long after each failure.
func TestAServerThatFailsIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &unreachable{}
		d := Definition{Server: upstream.Server{Name: "gone", URL: "http://127.0.0.1:9"}, Transport: server}
		b, err := New(Config{Servers: []Definition{d}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		const step = 100 * time.Millisecond
		for range 50 * time.Minute / step {
			b.listings.lookup(b.common["gone"], false)
			synctest.Wait()
			time.Sleep(step)
		}
		server.mu.Lock()
		defer server.mu.Unlock()
		want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600}
		if len(server.asked) != len(want)+1 {
			t.Fatalf("it is asked %d times, want %d", len(server.asked), len(want)+1)
		}
		for i, seconds := range want {
			got, want := server.asked[i+1].Sub(server.asked[i]), seconds*time.Second
			if got < want || got > want+2*step {
				t.Errorf("between the attempts %d and %d are %v, want from %v to %v", i+1, i+2, got, want, want+2*step)
			}
		}
	})
}

// A caller waits for a server until the deadline, and the next caller not at all.
func TestASlowServerIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := transportFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		d := Definition{Server: upstream.Server{Name: "slow", URL: "http://127.0.0.1:9"}, Transport: silent}
		b, err := New(Config{Servers: []Definition{d}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		wait := func(eager bool) time.Duration {
			began := time.Now()
			if l, err := b.listings.wait(t.Context(), b.listings.lookup(b.common["slow"], eager)); l != nil {
				t.Errorf("l = %+v, want none", l)
			} else if err == nil {
				t.Error("got no error, want one")
			}
			return time.Since(began)
		}
		if got := wait(false); got != timeout {
			t.Errorf("the first caller waits %v, want %v", got, timeout)
		}
		if got := wait(false); got != 0 {
			t.Errorf("the second caller waits %v, want not at all", got)
		}
		if got := wait(true); got != timeout {
			t.Errorf("an eager caller waits %v, want %v", got, timeout)
		}
	})
}

type transportFunc func(r *http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

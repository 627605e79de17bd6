package execution

import (
	"fmt"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// TestWhatRunsLeftIsBounded enters executions that have ended, each with pictures, as
// those do that go on without a request.
func TestWhatRunsLeftIsBounded(t *testing.T) {
	var r Registry
	shared := make([]byte, 1<<20)
	began := time.Now()
	end := func(owner session.Owner, n, megabytes int) {
		p := &Execution{done: make(chan struct{}), ended: began.Add(time.Duration(n) * time.Millisecond)}
		for range megabytes {
			p.out.Result.Displays = append(p.out.Result.Displays, sandbox.Display{Data: shared})
		}
		close(p.done)
		r.enter(runKey{owner, fmt.Sprint(n)}, p)
		r.tidy(owner)
	}
	held := func(owner session.Owner) (count, megabytes int) {
		for k, p := range r.byID {
			if owner == "" || k.owner == owner {
				count++
				megabytes += p.out.size() >> 20
			}
		}
		return count, megabytes
	}
	for n := range 100 {
		end("ann", n, 40)
	}
	if count, megabytes := held("ann"); count != 1 {
		t.Errorf("one owner: count: got %v, want 1", count)
	} else if megabytes > mostOwnBytes>>20 {
		t.Errorf("one owner: megabytes: got %v, want at most %v", megabytes, mostOwnBytes>>20)
	}
	if r.get(runKey{"ann", "99"}) == nil {
		t.Error("the last one is not there")
	}
	for n := range 100 {
		end("bob", n, 0)
	}
	if count, _ := held("bob"); count >= mostKept {
		t.Errorf("one owner: %d executions", count)
	}
	for n := range 100 {
		end(session.Owner(fmt.Sprint("owner", n)), 1000+n, 40)
	}
	if _, megabytes := held(""); megabytes > mostBytes>>20 {
		t.Errorf("all owners: %d MiB", megabytes)
	}
}

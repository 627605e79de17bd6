package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"paddock/internal/cluster/clustertest"
	"paddock/internal/fault"
)

// openHeads opens the heads of a cluster with so many servers.
func openHeads(t *testing.T, n int) (*clustertest.Servers, *Heads) {
	t.Helper()
	servers := clustertest.Start(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := OpenHeads(ctx, servers.Connect(), n)
	if err != nil {
		t.Fatal(err)
	}
	return servers, h
}

func ann(session string) Key { return Key{"ann@example.org", session} }

func write(t *testing.T, h *Heads, session, data string, after uint64) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seq, err := h.Write(ctx, ann(session), NewWriter(), []byte(data), after)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// read reads until the cluster has a leader that answers.
func read(t *testing.T, h *Heads, session string) Head {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		head, err := h.Read(ctx, ann(session))
		if err == nil {
			return head
		}
		if !wait(ctx) {
			t.Fatal(err)
		}
	}
}

func TestOfManyWhoClaimASessionOneGetsIt(t *testing.T) {
	_, h := openHeads(t, 3)
	first := write(t, h, "s", "holder a", 0)
	const claimants = 16
	var (
		mu   sync.Mutex
		won  []uint64
		errs []error
		wg   sync.WaitGroup
	)
	for i := range claimants {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			seq, err := h.Write(ctx, ann("s"), NewWriter(), fmt.Appendf(nil, "holder %d", i), first)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			} else {
				won = append(won, seq)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d claimants got the session, want 1; the others: %v", len(won), errors.Join(errs...))
	}
	for _, err := range errs {
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("a loser got %v, want a conflict", err)
		}
	}
	if head := read(t, h, "s"); head.Sequence != won[0] {
		t.Errorf("the head has sequence %d, but %d won", head.Sequence, won[0])
	}
}

func TestTheFormerHolderCannotCommit(t *testing.T) {
	_, h := openHeads(t, 1)
	a := write(t, h, "s", "held by a", 0)
	b := write(t, h, "s", "held by b", a)
	if _, err := h.Write(t.Context(), ann("s"), NewWriter(), []byte("late"), a); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a commit of the former holder: got %v, want a conflict", err)
	}
	if head := read(t, h, "s"); string(head.Data) != "held by b" || head.Sequence != b {
		t.Errorf("the head is %q at %d, want b's at %d", head.Data, head.Sequence, b)
	}
}

func TestAcknowledgedHeadsOutliveTheirLeader(t *testing.T) {
	servers, h := openHeads(t, 3)
	var seq uint64
	for i := range 20 {
		seq = write(t, h, "s", fmt.Sprint(i), seq)
	}
	leader := servers.Leader(headsStream)
	if leader < 0 {
		t.Fatal("no server leads the heads")
	}
	servers.Stop(leader)
	if head := read(t, h, "s"); head.Sequence != seq || string(head.Data) != "19" {
		t.Errorf("after the leader's end the head is %q at %d, want %q at %d", head.Data, head.Sequence, "19", seq)
	}
	write(t, h, "s", "20", seq)
}

func TestWithoutMostServersNothingIsAcknowledged(t *testing.T) {
	servers, h := openHeads(t, 3)
	seq := write(t, h, "s", "before", 0)
	servers.Stop(0)
	servers.Stop(1)
	me := NewWriter()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, err := h.Write(ctx, ann("s"), me, []byte("alone"), seq); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("one server of three: got sequence %d, %v; want unavailable", got, err)
	}
	servers.Restart(0)
	if s := string(read(t, h, "s").Data); s != "before" && s != "alone" {
		t.Errorf("after the restart the head is %q", s)
	}
	// What was published alone may be written even now: it is the same writer's.
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := h.Write(ctx, ann("s"), me, []byte("after"), seq); err != nil {
		t.Fatal(err)
	}
	if s := string(read(t, h, "s").Data); s != "after" {
		t.Errorf("the last head is %q", s)
	}
}

func TestAWriterIsNotTakenForAnother(t *testing.T) {
	_, h := openHeads(t, 1)
	me := NewWriter()
	first, err := h.Write(t.Context(), ann("s"), me, []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	// The writer does not know of its first head, as after an acknowledgement that was lost.
	second, err := h.Write(t.Context(), ann("s"), me, []byte("2"), 0)
	if err != nil || second <= first {
		t.Fatalf("a head after one's own: %d after %d, %v", second, first, err)
	}
	if head := read(t, h, "s"); string(head.Data) != "2" || head.Sequence != second {
		t.Errorf("the head is %q at %d, want 2 at %d", head.Data, head.Sequence, second)
	}
}

func TestAHeadThatIsTooLargeIsRefused(t *testing.T) {
	_, h := openHeads(t, 1)
	if _, err := h.Write(t.Context(), ann("s"), NewWriter(), make([]byte, maxHead), 0); err != nil {
		t.Errorf("the largest head: %v", err)
	}
	if _, err := h.Write(t.Context(), ann("t"), NewWriter(), make([]byte, maxHead+1), 0); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("a larger one: got %v, want exhausted", err)
	}
}

func TestADamagedHeadIsRefused(t *testing.T) {
	_, h := openHeads(t, 1)
	seq := write(t, h, "s", "whole", 0)
	if _, err := h.js.Publish(t.Context(), ann("s").subject(), []byte("else")); err != nil {
		t.Fatal(err)
	}
	if head, err := h.Read(t.Context(), ann("s")); fault.KindOf(err) != fault.Internal {
		t.Errorf("it is %q (%v)", head.Data, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.Write(ctx, ann("s"), NewWriter(), []byte("over it"), seq); fault.KindOf(err) != fault.Internal {
		t.Errorf("a write over it: got %v, want that it is damaged", err)
	}
}

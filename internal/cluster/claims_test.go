package cluster

import (
	"context"
	"testing"
	"time"

	"paddock/internal/cluster/clustertest"
	"paddock/internal/fault"
)

// node is a node of the servers, with a connection of its own.
func node(t *testing.T, servers *clustertest.Servers, name string) *Claims {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := servers.Connect()
	h, err := OpenHeads(ctx, nc, servers.Len())
	if err != nil {
		t.Fatal(err)
	}
	m, err := Join(ctx, nc, name, servers.Len())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return NewClaims(h, m)
}

// eventually claims a session once its holder is taken for dead.
func eventually(t *testing.T, c *Claims, k Key) *Claim {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		claim, err := c.Claim(ctx, k)
		if err == nil {
			return claim
		}
		if !wait(ctx) {
			t.Fatal(err)
		}
	}
}

func TestASessionHasOneHolder(t *testing.T) {
	servers := clustertest.Start(t, 1)
	a, b := node(t, servers, "a"), node(t, servers, "b")
	k := ann("s")
	if _, err := a.Claim(t.Context(), k); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a session that is not there: got %v", err)
	}
	held, err := a.Create(t.Context(), k, []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	for what, other := range map[string]*Claims{"another node": b, "the same node": a} {
		_, err := other.Claim(t.Context(), k)
		if by, ok := HolderOf(err); fault.KindOf(err) != fault.Conflict || !ok || by != a.members.Me() {
			t.Errorf("%s: got %v, held by %v", what, err, by)
		}
	}
	if _, err := b.Create(t.Context(), k, nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("made twice: got %v", err)
	}
	if err := held.Commit(t.Context(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := held.Release(t.Context(), []byte("2")); err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Commit(t.Context(), []byte("late")); err == nil {
		t.Error("a claim commits that was released")
	}
	next, err := b.Claim(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if state, clean := next.Found(); string(state) != "2" || !clean || next.Place() <= held.Place() {
		t.Errorf("the next holder finds %q, clean %t, at %d after %d", state, clean, next.Place(), held.Place())
	}
	if err := next.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Claim(t.Context(), k); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a session that was removed: got %v", err)
	}
	again, err := a.Create(t.Context(), k, []byte("again"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Place() <= next.Place() {
		t.Errorf("the place %d of a session of the same name comes after %d", again.Place(), next.Place())
	}
}

func TestWhoLeftIsTakenOverAndRefused(t *testing.T) {
	servers := clustertest.Start(t, 1)
	a, b := node(t, servers, "a"), node(t, servers, "b")
	first, err := a.Create(t.Context(), ann("s"), []byte("a's"))
	if err != nil {
		t.Fatal(err)
	}
	a.members.Close() // its heads can still be reached
	second := eventually(t, b, ann("s"))
	if state, clean := second.Found(); string(state) != "a's" || clean {
		t.Errorf("the next holder finds %q, clean %t", state, clean)
	}
	if err := first.Commit(t.Context(), []byte("late")); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a commit of the former holder: got %v", err)
	}
	select {
	case <-first.Lost():
	default:
		t.Error("the former holder does not know that it lost the session")
	}
	if err := first.Release(t.Context(), nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the former holder gives up what it does not have: got %v", err)
	}
	if err := second.Commit(t.Context(), []byte("b's")); err != nil {
		t.Error(err)
	}
}

func TestAnotherProcessOfTheSameNodeTakesOver(t *testing.T) {
	servers := clustertest.Start(t, 1)
	a, b := node(t, servers, "a"), node(t, servers, "b")
	if _, err := a.Create(t.Context(), ann("s"), nil); err != nil {
		t.Fatal(err)
	}
	a.members.Close()
	eventually(t, node(t, servers, "a"), ann("s"))
	if _, err := b.Claim(t.Context(), ann("s")); fault.KindOf(err) != fault.Conflict {
		t.Errorf("it is had by a living process: got %v", err)
	}
}

func TestWhoIsCutOffClaimsNothing(t *testing.T) {
	servers := clustertest.Start(t, 1)
	a, b := node(t, servers, "a"), node(t, servers, "b")
	if _, err := a.Create(t.Context(), ann("s"), nil); err != nil {
		t.Fatal(err)
	}
	servers.Stop(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for b.members.In() {
		if !wait(ctx) {
			t.Fatal("a node without servers stays in")
		}
	}
	if _, err := b.Claim(ctx, ann("s")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a claim of a node that is not in: got %v", err)
	}
	if dead, err := b.members.Dead(ctx, a.members.Me()); dead || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a node that is not in says that another is dead: %t, %v", dead, err)
	}
}

func TestSightings(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	one, two := Life{"a", "1", 6}, Life{"a", "2", 11}
	s := sightings{since: at(0), of: map[string]map[Life]sighting{}}
	check := func(what string, l Life, now int, quiet int, replaced bool) {
		t.Helper()
		if q, r := s.quiet(l, at(now)); q != time.Duration(quiet)*time.Millisecond || r != replaced {
			t.Errorf("%s: silent for %v, replaced %t; want %d ms, %t", what, q, r, quiet, replaced)
		}
	}
	check("who was never heard is silent since listening began", one, 700, 700, false)
	s.heard(message{one, 0}, at(800))
	check("a beat without an acknowledged one before it says nothing", one, 900, 900, false)
	s.heard(message{one, 7}, at(1000))
	check("a beat that most servers have", one, 1100, 100, false)
	s.heard(message{one, 7}, at(1300))
	check("beats of who is cut off from most servers", one, 2000, 1000, false)
	check("a later process that was not heard yet is not replaced by an earlier one", two, 2000, 2000, false)
	s.heard(message{two, 0}, at(2100))
	check("another process that is not in yet", one, 2200, 1200, false)
	s.heard(message{two, 12}, at(2300))
	check("a later process of the node", one, 2400, 1400, true)
	check("that process", two, 2400, 100, false)
	s.heard(message{two, 3}, at(2500))
	check("beats after all servers were down count from 1 again", two, 2600, 100, false)
	s.heard(message{Life{"a", "3", 4}, 5}, at(2300+60001))
	check("of those before, only who was heard lately is known", one, 70000, 70000, true)
}

package share

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOwnersWaitForThemselvesAndThenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(3, 2)
		take := func(owner string, n int64) (release func(), waiting func() bool) {
			taken := make(chan func(), 1)
			go func() {
				r, err := p.Take(t.Context(), owner, n)
				if err != nil {
					t.Error(err)
				}
				taken <- r
			}()
			synctest.Wait()
			return func() { (<-taken)() }, func() bool { return len(taken) == 0 }
		}
		ann, waits := take("ann", 2)
		if waits() {
			t.Fatal("the first one waits")
		}
		again, waits := take("ann", 1)
		if !waits() {
			t.Fatal("an owner has more than their part")
		}
		bob, bobWaits := take("bob", 1)
		if bobWaits() {
			t.Fatal("another owner waits for the first one's line")
		}
		cara, caraWaits := take("cara", 2)
		if !caraWaits() {
			t.Fatal("all together have more than there is")
		}
		ann()
		synctest.Wait()
		if caraWaits() || !waits() {
			t.Error("who has waited for longer is not the first")
		}
		bob()
		synctest.Wait()
		if waits() {
			t.Error("the owner's next one still waits")
		}
		cara()
		again()
		if len(p.owners) != 0 {
			t.Errorf("%d owners are remembered", len(p.owners))
		}
	})
}

func TestWhoGivesUpTakesNothing(t *testing.T) {
	p := New(1, 1)
	release, err := p.Take(t.Context(), "ann", 1)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	for _, owner := range []string{"ann", "bob"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if _, err := p.Take(ctx, owner, 1); !errors.Is(err, gone) {
			t.Errorf("%s: %v", owner, err)
		}
	}
	release()
	release()
	for range 2 {
		r, err := p.Take(t.Context(), "bob", 1)
		if err != nil {
			t.Fatal(err)
		}
		r()
	}
}

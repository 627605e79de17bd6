package install

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"paddock/internal/session"
)

// asks has an owner wait for a turn; what it gives tells whether it has come, and ends it.
func asks(ctx context.Context, i *Installer, owner session.Owner) (came func() bool, end func() error) {
	in, done := make(chan func(), 1), make(chan error, 1)
	go func() {
		leave, err := i.turn(ctx, owner)
		done <- err
		in <- leave
	}()
	return func() bool { synctest.Wait(); return len(in) == 1 }, func() error {
		err := <-done
		if leave := <-in; leave != nil {
			leave()
		}
		return err
	}
}

func TestAnOwnersInstallationsKeepNobodyElseOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{})
		type one struct {
			owner session.Owner
			came  func() bool
			end   func() error
		}
		var all []one
		ask := func(owner session.Owner) one {
			came, end := asks(t.Context(), i, owner)
			all = append(all, one{owner, came, end})
			came() // it is in the line before the next one comes
			return all[len(all)-1]
		}
		for k, want := range []bool{true, true, false, false, false} {
			if got := ask("ann").came(); got != want {
				t.Errorf("ann's installation %d is made: %v", k, got)
			}
		}
		for k, want := range []bool{true, true, false} {
			if got := ask("ben").came(); got != want {
				t.Errorf("ben's installation %d is made: %v", k, got)
			}
		}
		cleo := ask("cleo")
		if cleo.came() {
			t.Error("there are more installations than may be at once")
		}
		// Those of ann and ben that wait came before, but none of theirs may go yet.
		if err := all[0].end(); err != nil {
			t.Error(err)
		}
		if !cleo.came() {
			t.Error("cleo.came(): got false, want true")
		}
		if all[2].came() {
			t.Error("all[2].came(): got true, want false")
		}
		for _, o := range all[1:] {
			if err := o.end(); err != nil {
				t.Errorf("%s: %v", o.owner, err)
			}
		}
		if load := i.slots.Load(); load.Running != 0 {
			t.Errorf("load.Running: got %v, want 0", load.Running)
		} else if load.Waiting != 0 {
			t.Errorf("load.Waiting: got %v, want 0", load.Waiting)
		}
	})
}

func TestAWaitForATurnEndsWithItsInstallation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{OfOwner: 1, AtOnce: 1})
		came, end := asks(t.Context(), i, "ann")
		if !came() {
			t.Fatal("there is no turn")
		}
		why := errors.New("the user pressed stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, waiting := asks(ctx, i, "ben")
		synctest.Wait()
		cancel(why)
		if err := waiting(); !errors.Is(err, why) {
			t.Errorf("it ends with %v", err)
		}
		if _, err := i.turn(ctx, "ben"); !errors.Is(err, why) {
			t.Errorf("one that was cancelled before ends with %v", err)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		leave, err := i.turn(t.Context(), "ben")
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

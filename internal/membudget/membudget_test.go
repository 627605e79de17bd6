package membudget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/membudget"
)

func TestAnOwnerHoldsItsShareAndNoMore(t *testing.T) {
	b := membudget.New(100, 40)
	if _, err := b.Acquire(t.Context(), "ann", 41); fault.KindOf(err) != fault.Exhausted {
		t.Fatalf("more than a share: %v", err)
	}
	release, err := b.Acquire(t.Context(), "ann", 40)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx, "ann", 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("a second request of the same owner: %v", err)
	}
	if other, err := b.Acquire(t.Context(), "bob", 40); err != nil {
		t.Fatalf("another owner: %v", err)
	} else {
		other()
	}
	release()
	release()
	if held := b.Held(); held != 0 {
		t.Fatalf("%d bytes are still held", held)
	}
	if release, err = b.Acquire(t.Context(), "ann", 40); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	release()
}

func TestAcquireWaitsForWhatOthersRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(100, 100)
		first, err := b.Acquire(t.Context(), "ann", 80)
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		go func() {
			release, err := b.Acquire(t.Context(), "bob", 30)
			if err == nil {
				release()
			}
			taken <- err
		}()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		first()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAcquireDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(100, 100)
		release, err := b.Acquire(t.Context(), "ann", 100)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		began := time.Now()
		_, err = b.Acquire(t.Context(), "bob", 1)
		if f := fault.Of(err); f == nil || f.Kind != fault.Exhausted || !f.Retryable() {
			t.Fatalf("got %v", err)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("it waited for %v", time.Since(began))
		}
	})
}

func TestANilBudgetBoundsNothing(t *testing.T) {
	var b *membudget.Budget
	release, err := b.Acquire(t.Context(), "ann", 1<<60)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestARequestHoldsItsBytesUntilItsEnd(t *testing.T) {
	b := membudget.New(100, 100)
	ctx, end := b.Scope(t.Context(), "ann")
	for _, n := range []int64{30, 60, 10} {
		if err := membudget.Hold(context.WithoutCancel(ctx), n); err != nil {
			t.Fatal(err)
		}
	}
	if held := b.Held(); held != 60 {
		t.Errorf("%d bytes are held", held)
	}
	end()
	end()
	if err := membudget.Hold(ctx, 30); err != nil {
		t.Error(err)
	}
	if err := membudget.Hold(t.Context(), 1000); err != nil {
		t.Error(err)
	}
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}

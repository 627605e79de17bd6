package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"paddock/internal/fault"
)

// block holds the right to write, as another process's long transaction does.
func block(t *testing.T, s *Store) (release func()) {
	t.Helper()
	c, err := dial(s.path, "rw", time.Second)
	if err == nil {
		err = c.exec(beginWrite)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.exec(commit); err != nil {
			t.Error(err)
		}
		s.release(c)
	}
}

var hastyTerms = options{migrations, 20 * time.Millisecond, time.Minute, time.Millisecond, time.Millisecond, time.Millisecond}

// hasty is a fresh index that waits for nothing long.
func hasty(t *testing.T) *Store {
	t.Helper()
	s := fresh(t)
	s.Close()
	s = open(s.path, logger(t), hastyTerms)
	t.Cleanup(func() { s.Close() })
	return s
}

// settle waits for what was put until that gives want.
func settle(t *testing.T, s *Store, want error) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !errors.Is(s.await(t.Context()), want) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waiting does not come to give %v", want)
		}
	}
}

func TestALongTransactionOfOthersHoldsNobodyUp(t *testing.T) {
	s := hasty(t)
	s.PutSession(example("local", 1))
	wantIDs(t, s, "local", "s-00001")
	release := block(t, s)
	wantIDs(t, s, "local", "s-00001") // who reads waits for no writer
	s.PutSession(example("local", 2))
	if _, err := s.Sessions("local"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("reading what is not written gives %v", err)
	}
	settle(t, s, ErrUnavailable) // the writer has tried
	release()
	settle(t, s, nil)
	wantIDs(t, s, "local", "s-00001", "s-00002")
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	s := fresh(t)
	defer block(t, s)()
	s.PutSession(example("local", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("it gives %v", err)
	}
}

func TestWhatCannotBeWrittenForLongIsDroppedAndTheIndexRebuilt(t *testing.T) {
	s := hasty(t)
	s.PutSession(example("local", 0))
	flush(t, s)
	r, err := s.Rebuild(t.Context()) // which cannot know that something will be missing
	if err != nil {
		t.Fatal(err)
	}
	release := block(t, s)
	for i := range 10 * maxQueued { // the writer may have the first of them in hand
		write(s, func(*conn) error { return nil })
		if i%1000 == 0 && errors.Is(s.await(t.Context()), ErrIncomplete) {
			break
		}
	}
	// Which of the two it is depends on whether the writer has just failed again.
	if _, err := s.Sessions("local"); !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("reading gives %v, want ErrIncomplete or ErrUnavailable", err)
	}
	release()
	settle(t, s, nil)
	if _, err := s.Sessions("local"); !errors.Is(err, ErrIncomplete) {
		t.Errorf("reading gives %v after changes were dropped", err)
	}
	if other := opened(t, s.path); other.Complete() {
		t.Error("the file calls itself complete")
	}
	if err := r.Finish(t.Context()); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the rebuild that began before ends with %v", err)
	}
	complete(t, s)
}

func TestSessionsThatArePutAgainAndAgainDoNotFillTheQueue(t *testing.T) {
	s := hasty(t)
	release := block(t, s)
	for i := range 2 * maxQueued {
		r := example("local", i%10)
		r.Head = int64(i)
		s.PutSession(r)
	}
	release()
	settle(t, s, nil)
	if got := heads(t, s, "local"); len(got) != 10 || got["s-00007"] < 2*maxQueued-10 {
		t.Errorf("%v", got)
	}
}

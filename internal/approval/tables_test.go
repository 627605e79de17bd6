package approval_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestApprovalsAreTheSameInEachTable has two hands at the approvals of one table, as two
// processes or two machines are.
func TestApprovalsAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return approval.FolderForTest(t.TempDir()) }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		hands := [2]*approval.Store{approval.In(in, approval.Options{}), approval.In(in, approval.Options{})}
		here, there := hands[0], hands[1]
		many := func(do func(s *approval.Store) error, kinds ...fault.Kind) (done int32) {
			t.Helper()
			var n atomic.Int32
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					err := do(hands[i%2])
					if err == nil {
						n.Add(1)
						return
					}
					for _, kind := range kinds {
						if fault.KindOf(err) == kind {
							return
						}
					}
					t.Error(err)
				})
			}
			all.Wait()
			return n.Load()
		}
		var ids sync.Map
		many(func(s *approval.Store) error {
			a, err := s.Request(t.Context(), asked())
			ids.Store(a.ID, true)
			return err
		})
		all, err := here.List("local")
		if err != nil || len(all) != 1 {
			t.Fatalf("of one place there are %+v (%v)", all, err)
		}
		a := all[0]
		ids.Range(func(id, _ any) bool {
			if id != a.ID {
				t.Errorf("somebody was given %s, and it is %s", id, a.ID)
			}
			return true
		})
		waited := make(chan approval.Approval, 1)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			got, err := here.Wait(t.Context(), "local", a.ID)
			if err != nil {
				t.Error(err)
			}
			waited <- got
		})
		if n := many(func(s *approval.Store) error {
			_, err := s.Decide(t.Context(), "local", a.ID, approval.Decision{By: "boss", Grant: true})
			return err
		}, fault.Conflict); n != 1 {
			t.Errorf("%d decided", n)
		}
		waiting.Wait()
		if got := <-waited; got.State != approval.Granted || got.By != "boss" {
			t.Errorf("who waited has %+v", got)
		}
		if n := many(func(s *approval.Store) error { return s.Use(t.Context(), a.ID, asked()) }, fault.Conflict); n != 1 {
			t.Errorf("a grant was used %d times", n)
		}

		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		told := make(chan approval.Approval, 10)
		waiting.Go(func() { here.Watch(ctx, "", func(a approval.Approval) { told <- a }) })
		r := asked()
		r.Owner, r.Number = "token:t", 2
		b := request(t, there, r)
		if _, err := there.Decide(t.Context(), r.Owner, b.ID, approval.Decision{By: "boss"}); err != nil {
			t.Error(err)
		}
		select {
		case got := <-told:
			if got.ID != b.ID || got.State != approval.Denied {
				t.Errorf("it tells of %+v", got)
			}
		case <-ctx.Done():
			t.Error("nothing is told of a decision")
		}
		stop()
		waiting.Wait()
		if _, err := here.Get("local", b.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another owner finds it: %v", err)
		}
		if got, err := here.Find(b.ID); err != nil || got.Owner != r.Owner {
			t.Errorf("it is found as %+v (%v)", got, err)
		}
		if all, err := there.All(); err != nil || len(all) != 2 {
			t.Errorf("all are %+v (%v)", all, err)
		}

		r = asked()
		var n atomic.Int32
		for r.Number = 3; r.Number < 6; r.Number++ {
			request(t, here, r)
		}
		many(func(s *approval.Store) error {
			some, err := s.Withdraw(t.Context(), "local", r.Session, "")
			n.Add(int32(some))
			return err
		})
		if n.Load() != 3 {
			t.Errorf("%d of 3 were withdrawn", n.Load())
		}
	})
}

package preview

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
)

func TestPreviewsOfOneOwnerLeaveRoomToOthers(t *testing.T) {
	const atOnce = 2
	var all lanes
	enter := func(owner session.Owner, n int) (leave func(), err error) {
		p := Preview{ID: fmt.Sprint(owner, n), Owner: owner, Expires: time.Now().Add(time.Hour)}
		return all.of(p, atOnce).enter(context.Background())
	}
	var leaving []func()
	fill := func(owner session.Owner) (n int, err error) {
		for {
			leave, err := enter(owner, n/atOnce)
			if err != nil {
				return n, err
			}
			leaving = append(leaving, leave)
			n++
		}
	}
	for k := range ofAll / ofOwner {
		n, err := fill(session.Owner(fmt.Sprint("owner", k)))
		switch {
		case n != ofOwner*atOnce:
			t.Errorf("the %d. owner: n = %v, want %v: %v", k, n, ofOwner*atOnce, err)
		case !errors.Is(err, errCrowded):
			t.Errorf("the %d. owner: error %v, want %v", k, err, errCrowded)
		case fault.KindOf(err) != fault.Exhausted:
			t.Errorf("the %d. owner: error %v, want kind %v", k, err, fault.Exhausted)
		}
	}
	if n, err := fill("another"); n != 0 {
		t.Errorf("when all are taken another owner: n = %d, want 0", n)
	} else if !errors.Is(err, errCrowded) {
		t.Errorf("when all are taken another owner: got error %v, want %+v", err, errCrowded)
	}
	for _, leave := range leaving {
		leave()
	}
	if len(all.owners) != 0 {
		t.Errorf("of those: len(all.owners) = %d, want none: %+v", len(all.owners), all.owners)
	} else if all.total != 0 {
		t.Errorf("of those: all.total = %d, want 0", all.total)
	}
	if n, _ := fill("another"); n != ofOwner*atOnce {
		t.Errorf("then another one has %d", n)
	}
}

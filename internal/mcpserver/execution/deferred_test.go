package execution

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"paddock/internal/approval"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// goesOn is a Program that has ended when it is gone on with.
type goesOn struct{}

// Continue implements [Program].
func (goesOn) Continue(context.Context, session.ID, string) (Part, error) {
	return Part{Result: session.Result{Exit: sandbox.Exit{Result: "the end"}}}, nil
}

// TestAProgramThatWaitsForNothingHasNoExecution counts what an ordinary program costs
// here: what would take approvals, and the context that names it.
func TestAProgramThatWaitsForNothingHasNoExecution(t *testing.T) {
	r := NewRegistry(Config{})
	defer r.Close()
	q, begin := Request{Owner: "ann", Program: goesOn{}}, func(context.Context) (Part, error) { return Part{}, nil }
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		if _, err := r.Run(ctx, q, begin); err != nil {
			t.Error(err)
		}
	})
	if want := 2.0; got > want {
		t.Errorf("it costs %v allocations, want at most %v", got, want)
	}
}

func TestTheFirstApprovalMakesAnExecution(t *testing.T) {
	store, suspended := approval.Open(t.TempDir(), approval.Options{}), errors.New("suspended")
	r := NewRegistry(Config{Approvals: store})
	defer r.Close()
	asked := 0
	q := Request{Owner: "ann", Program: goesOn{}, Elicitor: func(context.Context, approval.Approval) Verdict {
		asked++
		if n := len(r.byID); n != 1 {
			t.Errorf("while the client is asked there are %d executions, want 1", n)
		}
		return allowed
	}}
	part, err := r.Run(t.Context(), q, func(ctx context.Context) (Part, error) {
		ctx, suspend := context.WithCancelCause(ctx)
		id := ""
		err := store.Approve(approval.WithSuspend(ctx, func(reason string) {
			if id == "" {
				id = reason
				suspend(suspended)
			}
		}), approval.Request{
			Key:  approval.Key{Owner: "ann", Session: "s", Execution: "x", Number: 1},
			Call: approval.Call{Server: "mail", Definition: "d", Tool: "send", Arguments: json.RawMessage("{}")},
		}, suspended)
		if !errors.Is(err, suspended) {
			t.Errorf("the call ends with %v, want %v", err, suspended)
		}
		return Part{Result: session.Result{Session: "s", Execution: "x", Waiting: []string{id}, Exit: sandbox.Exit{Cause: sandbox.Waiting}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := part.Result.Exit.Result, "the end"; got != want {
		t.Errorf("it comes to %q, want %q", got, want)
	}
	if asked != 1 {
		t.Errorf("the client is asked %d times, want 1", asked)
	}
	if n := len(r.byID); n != 0 {
		t.Errorf("afterwards there are %d executions, want 0", n)
	}
}

func TestAPanicLeavesNoExecution(t *testing.T) {
	store, suspended := approval.Open(t.TempDir(), approval.Options{}), errors.New("suspended")
	r := NewRegistry(Config{Approvals: store})
	defer r.Close()
	asked := 0
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the caller")
			}
		}()
		_, _ = r.Run(t.Context(), Request{Owner: "ann", Program: goesOn{}}, func(ctx context.Context) (Part, error) {
			ctx, suspend := context.WithCancelCause(ctx)
			_ = store.Approve(approval.WithSuspend(ctx, func(string) { suspend(suspended) }), approval.Request{
				Key:  approval.Key{Owner: "ann", Session: "s", Execution: "x", Number: 1},
				Call: approval.Call{Server: "mail", Definition: "d", Tool: "send", Arguments: json.RawMessage("{}")},
			}, suspended)
			asked = len(r.byID)
			panic("a mistake")
		})
	}()
	if asked != 1 {
		t.Errorf("before the panic there are %d executions, want 1", asked)
	}
	if n := len(r.byID); n != 0 {
		t.Errorf("afterwards there are %d executions, want 0", n)
	}
}

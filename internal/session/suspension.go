package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
)

// suspension is the run of a session that waits for a person. It is only what the newest
// checkpoint says: nothing of it is kept here. Any goroutine may call its methods, which
// take checkpoints.mu.
type suspension struct {
	key
	checkpoints *checkpoints
	turns       *turns
	tools       Tools // is told of runs that will never go on; nil: nothing is
	log         *slog.Logger
}

// waits gives the run that waits in the session; nil: none does.
func (w *suspension) waits() *history.Waiting {
	w.checkpoints.mu.Lock()
	defer w.checkpoints.mu.Unlock()
	return w.checkpoints.repo.Head().Waits()
}

// find gives the run that a request goes on with.
func (w *suspension) find(execution string) (*history.Waiting, error) {
	if w.turns.has(execution) {
		return nil, errAlreadyRunning(execution)
	}
	if waiting := w.waits(); waiting != nil && waiting.Execution == execution {
		return waiting, nil
	}
	return nil, errNotWaiting(execution)
}

func errAlreadyRunning(execution string) error {
	return fault.New(fault.Conflict, "the run %q is going on already", execution).WithHint("its result goes to who waits for it")
}

func errNotWaiting(execution string) error {
	return fault.New(fault.NotFound, "no run %q waits in this session", execution).
		WithHint("it has ended, was given up, or was interrupted when the server ended; run the code again where it is still wanted")
}

// isIn reports whether a run waits, or was gone on with, in an interpreter.
func (w *suspension) isIn(runtime string) bool {
	w.checkpoints.mu.Lock()
	defer w.checkpoints.mu.Unlock()
	waiting := w.checkpoints.repo.Head().Waiting
	return waiting != nil && waiting.Runtime == runtime
}

// resume notes on disk that the run goes on, and gives what it needs. lost are the runtimes
// whose interpreters lost what they held, and why; the run's lives. It is the caller's turn.
func (w *suspension) resume(ctx context.Context, execution string, lost map[string]string) (*suspended, error) {
	from, abandoned, err := w.take(ctx, execution, lost)
	if abandoned {
		w.notifyAbandoned(execution)
	}
	return from, err
}

// take is resume's under the lock; abandoned tells that the run was given up, as it cannot
// go on.
func (w *suspension) take(ctx context.Context, execution string, lost map[string]string) (from *suspended, abandoned bool, err error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	w.checkpoints.mu.Lock()
	defer w.checkpoints.mu.Unlock()
	repo := w.checkpoints.repo
	waiting := repo.Head().Waits()
	if waiting == nil || waiting.Execution != execution {
		return nil, false, errNotWaiting(execution)
	}
	why, gone := lost[waiting.Runtime]
	if !gone {
		from, err = decodeSuspended(repo)
		var syntax *json.SyntaxError
		if gone = unresumable(err) || errors.As(err, &syntax); err != nil && !gone {
			return nil, false, unusable(fmt.Errorf("reading what a run waits for: %w", err))
		}
		why = "what it waited for is damaged"
	}
	if !gone {
		if err := repo.GoOn(ctx); err != nil {
			return nil, false, fmt.Errorf("noting that the run goes on: %w", err)
		}
		return from, false, nil
	}
	if err := repo.Abandon(ctx); err != nil {
		return nil, false, fmt.Errorf("giving up a run that cannot go on: %w", err)
	}
	return nil, true, fault.New(fault.Unsupported, "the run %q cannot go on: %s", execution, why).WithHint("run its code again where it is still wanted")
}

// decodeSuspended reads what the run of the head needs to go on.
func decodeSuspended(repo *checkpoint.Repo) (*suspended, error) {
	data, err := repo.Content()
	if err != nil {
		return nil, err
	}
	from := new(suspended)
	return from, json.Unmarshal(data, from)
}

// abandon gives up the run that waits, if it is this execution; "": whichever it
// is. It tells who wants to know, and gives what it gave up; nil: there was nothing. It
// waits for no program.
func (w *suspension) abandon(ctx context.Context, execution string) (*history.Waiting, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	w.checkpoints.mu.Lock()
	waiting := w.checkpoints.repo.Head().Waits()
	if waiting == nil || execution != "" && waiting.Execution != execution {
		w.checkpoints.mu.Unlock()
		return nil, nil
	}
	err := w.checkpoints.repo.Abandon(ctx)
	w.checkpoints.mu.Unlock()
	if err != nil {
		return nil, err
	}
	w.notifyAbandoned(waiting.Execution)
	return waiting, nil
}

// notifyAbandoned tells that a run which waited will never go on. The caller holds no lock.
func (w *suspension) notifyAbandoned(execution string) {
	if w.tools == nil {
		return
	}
	_, err := guard("giving up a run", func() (struct{}, error) { w.tools.Abandoned(w.owner, w.id, execution); return struct{}{}, nil })
	if err != nil {
		w.log.Error("the callback for an abandoned run failed", "session", w.id, "execution", execution, "cause", fault.CauseOf(err))
	}
}

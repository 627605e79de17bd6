//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"paddock/internal/sandbox"
)

func TestBoxesWaitForTheirTurnToBootAndMayLeave(t *testing.T) {
	b := newBackend(t)
	for range cap(b.booting) { // so many boot just now
		b.booting <- struct{}{}
	}
	type started struct {
		in  sandbox.Instance
		err error
	}
	ask := func(ctx context.Context, box string) <-chan started {
		done := make(chan started, 1)
		go func() {
			in, err := b.Start(ctx, sandbox.Spec{Owner: "alice", Box: box, Runtime: sandbox.CommandRuntime, Dir: "/"})
			done <- started{in, err}
		}()
		return done
	}
	waits := ask(t.Context(), "waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	leaves := ask(ctx, "leaves")
	eventually(t, "their waiting", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.all) == 2
	})
	gone := errors.New("it has gone")
	cancel(gone)
	if got := <-leaves; !errors.Is(got.err, gone) {
		t.Errorf("who left is told %v", got.err)
	}
	select {
	case got := <-waits:
		t.Fatalf("it did not wait: %v", got.err)
	default:
	}
	for range cap(b.booting) {
		<-b.booting
	}
	got := <-waits
	if got.err != nil {
		t.Fatal(got.err)
	}
	got.in.Close()
	if len(b.all) != 0 || len(b.booting) != 0 {
		t.Errorf("%d machines are left, and %d boot", len(b.all), len(b.booting))
	}
}

func TestFortyBoxesThatAreAskedForAtOnceAllBoot(t *testing.T) {
	b := newBackend(t)
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			in, err := b.Start(t.Context(), sandbox.Spec{Owner: "alice", Box: fmt.Sprint(n), Runtime: sandbox.CommandRuntime, Dir: "/"})
			if err != nil {
				t.Errorf("number %d: %v", n, err)
				return
			}
			in.Close()
		})
	}
	all.Wait()
}

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

func TestNothingIsUnderWayDuringAHold(t *testing.T) {
	client := dial(t, func(c child) {
		c.started()
		for range 2 {
			n := c.expect(KindHold).ID
			c.send(KindHeld, n+1, StatusBody{}) // a late one of another hold
			c.send(KindHeld, n, StatusBody{})
			c.expect(KindGoOn)
		}
		c.expect(KindRun)
		c.send(KindDone, 1, exited)
	})
	in := start(t, client)
	var run chan error
	broken := errors.New("on purpose")
	for _, want := range []error{nil, broken} {
		err := client.Hold(t.Context(), func() error {
			if _, err := in.Run(t.Context(), sandbox.Command{}); fault.KindOf(err) != fault.Conflict {
				t.Errorf("it can be used: %v", err)
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("it gave %v, want %v", err, want)
		}
	}
	run = make(chan error, 1)
	_, err := in.Run(t.Context(), sandbox.Command{})
	run <- err
	if err := <-run; err != nil {
		t.Error(err)
	}
}

func TestABusyInstanceIsNotHeld(t *testing.T) {
	began := make(chan struct{})
	client := dial(t, func(c child) {
		c.started()
		c.expect(KindRun)
		close(began)
		c.expect(KindInterrupt)
		c.send(KindDone, 1, exited)
	})
	in := start(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = in.Run(ctx, sandbox.Command{})
	}()
	<-began
	err := client.Hold(t.Context(), func() error { t.Error("it is held"); return nil })
	if fault.KindOf(err) != fault.Conflict {
		t.Error(err)
	}
	cancel()
	<-ended
}

func TestAHoldEndsWithItsContextAndTheConnection(t *testing.T) {
	client := dial(t, func(c child) {
		n := c.expect(KindHold).ID
		c.expect(KindGoOn)
		c.send(KindHeld, n, StatusBody{})
		c.expect(KindHold)
		_ = c.Close()
	})
	never := func() error { t.Error("it is held"); return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := client.Hold(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := client.Hold(t.Context(), never); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
}

// restored connects to a child that says this of itself.
func restored(t *testing.T, says any) (*Client, []Survivor, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c := child{t, NewConn(theirs)}
		var body RestoredBody
		if err := json.Unmarshal(c.expect(KindRestored).Body, &body); err != nil || body.Version != Version || !body.Reseed {
			t.Errorf("it is told %+v, %v", body, err)
		}
		c.send(KindManaged, 0, ManagedBody{Number: 1}) // what it was about to say
		if text, ok := says.([]byte); ok {
			_ = c.Write(KindSurvived, 0, text)
		} else {
			c.send(KindSurvived, 0, says)
		}
		for {
			f, err := c.Read()
			if err != nil {
				return
			}
			if f.Kind == KindRun {
				c.send(KindDone, f.ID, exited)
			}
			if f.Kind == KindStart {
				c.send(KindStarted, f.ID, StatusBody{})
			}
		}
	}()
	client, all, err := NewRestoredClient(t.Context(), ours, RestoredBody{Reseed: true}, nil, nil)
	t.Cleanup(func() {
		if client != nil {
			client.Close()
		}
		theirs.Close()
		<-ended
	})
	return client, all, err
}

func TestARestoredChildsInstancesAreTakenOver(t *testing.T) {
	client, all, err := restored(t, SurvivedBody{Version: Version, Instances: []Survivor{{ID: 7, Runtime: "python"}, {ID: 3, Runtime: "bash"}}})
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	in, err := client.Adopt(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Run(t.Context(), sandbox.Command{}); err != nil {
		t.Error(err)
	}
	if next := start(t, client); next.ID() <= 7 {
		t.Errorf("a new one has the number %d", next.ID())
	}
}

func TestARestoredChildThatMakesNoSenseIsRefused(t *testing.T) {
	many := make([]Survivor, maxSurvivors+1)
	for n := range many {
		many[n].ID = uint32(n + 1)
	}
	for name, says := range map[string]any{
		"another version":    SurvivedBody{Version: Version + 1},
		"an error":           SurvivedBody{Version: Version, Error: "a program was changed"},
		"two with a number":  SurvivedBody{Version: Version, Instances: []Survivor{{ID: 1}, {ID: 1}}},
		"one without":        SurvivedBody{Version: Version, Instances: []Survivor{{}}},
		"one near the end":   SurvivedBody{Version: Version, Instances: []Survivor{{ID: 1<<32 - 1}}},
		"too many":           SurvivedBody{Version: Version, Instances: many},
		"something else":     []byte("[]"),
		"nothing that it is": []byte("\x00\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			if client, all, err := restored(t, says); err == nil || client != nil {
				t.Errorf("it is taken: %v", all)
			}
		})
	}
}

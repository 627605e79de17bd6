package agent

import (
	"encoding/json"
	"fmt"

	"paddock/internal/sandbox/wire"
)

// hold tells the server that nothing is under way from here, sends nothing, and
// waits for the word to go on. Meanwhile the box may be saved: then what is read
// next comes from another server, or later, and says so.
func (a *agent) hold(number uint32) error {
	return a.conn.Alone(func(write func(wire.Kind, uint32, any) error) error {
		if err := write(wire.KindHeld, number, wire.HeldBody{}); err != nil {
			return errHungUp
		}
		f, err := a.conn.Read()
		if err != nil {
			return errHungUp
		}
		switch f.Kind {
		case wire.KindGoOn:
			return nil
		case wire.KindRestored:
			return a.restored(f, write)
		}
		return fmt.Errorf("a frame of kind %d came while nothing was to be sent", f.Kind)
	})
}

// restored tells the server of now what is still here.
func (a *agent) restored(f wire.Frame, write func(wire.Kind, uint32, any) error) error {
	var body wire.RestoredBody
	if err := json.Unmarshal(f.Body, &body); err != nil {
		return fmt.Errorf("reading about the restoring: %w", err)
	}
	answer := wire.SurvivedBody{Version: wire.Version}
	if body.Version != wire.Version {
		answer.Error = fmt.Sprintf("the server speaks version %d of the protocol", body.Version)
	}
	a.mu.Lock()
	for id, in := range a.instances {
		answer.Instances = append(answer.Instances, wire.Survivor{ID: id, Runtime: in.start.Runtime, Memory: in.start.MemoryBytes})
	}
	a.mu.Unlock()
	return write(wire.KindSurvived, 0, answer)
}

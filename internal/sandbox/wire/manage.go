package wire

import (
	"context"
	"encoding/json"
	"fmt"

	"paddock/internal/sandbox"
)

// What a list of processes tells at most; texts in characters.
const (
	maxProcesses = 500
	maxCommand   = 256
	maxRuntimes  = 20
)

// MaxPrinted is how much of what was printed between runs one answer holds.
const MaxPrinted = 256 << 10

// The operations of a ManageBody.
const (
	ManageList     = "list"
	ManageSignal   = "signal"
	ManageRead     = "read"
	ManageRuntimes = "runtimes" // of no instance

	ManageOpenTerminal = "open terminal"
	ManageTerminals    = "terminals"
	ManageResize       = "resize terminal"
)

// ManageBody asks for something about the processes of an instance, whether it
// runs a program or not; or about the child.
type ManageBody struct {
	Number   uint32 `json:"number"` // the answer has the same
	Op       string `json:"op"`
	Instance uint32 `json:"instance"`
	PID      int    `json:"pid,omitempty"`    // to be signalled
	Signal   string `json:"signal,omitempty"` // its name
	From     int64  `json:"from,omitempty"`   // where to read on

	Open     sandbox.TerminalSpec `json:"open,omitzero"`      // a terminal
	Terminal uint32               `json:"terminal,omitempty"` // to be resized
	Size     sandbox.TerminalSize `json:"size,omitzero"`
}

// ManagedBody answers a ManageBody.
type ManagedBody struct {
	StatusBody
	Number    uint32            `json:"number"`
	Processes []sandbox.Process `json:"processes,omitempty"`
	Printed   sandbox.Printed   `json:"printed"`
	Runtimes  []sandbox.Runtime `json:"runtimes,omitempty"`
	// Terminals are all of the machine's, or the one that was opened.
	Terminals []sandbox.Terminal `json:"terminals,omitempty"`
}

// manage asks the child, and waits for the answer as long as ctx allows.
func (c *Client) manage(ctx context.Context, body ManageBody) (ManagedBody, error) {
	answer := make(chan ManagedBody, 1)
	c.mu.Lock()
	c.question++
	body.Number = c.question
	c.asked[body.Number] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asked, body.Number)
	}()
	if err := c.conn.WriteJSON(KindManage, 0, body); err != nil {
		return ManagedBody{}, gone(err)
	}
	select {
	case a := <-answer:
		return a, a.err()
	case <-c.ended:
		return ManagedBody{}, gone(c.Err())
	case <-ctx.Done():
		return ManagedBody{}, context.Cause(ctx)
	}
}

// managed hands an answer to whom it is for. One that nobody waits for is late.
func (c *Client) managed(text []byte) error {
	var a ManagedBody
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("reading about processes: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.asked[a.Number]; answer != nil {
		delete(c.asked, a.Number)
		answer <- a
	}
	return nil
}

// Runtimes asks the child what it can run: it looks for the interpreters and
// asks each for its version. Only children that run processes answer.
func (c *Client) Runtimes(ctx context.Context) ([]sandbox.Runtime, error) {
	a, err := c.manage(ctx, ManageBody{Op: ManageRuntimes})
	if err != nil {
		return nil, err
	}
	list := a.Runtimes[:min(len(a.Runtimes), maxRuntimes)]
	for i, r := range list {
		list[i] = sandbox.Runtime{Name: cut(r.Name, maxName), Version: cut(r.Version, maxType), Description: cut(r.Description, maxName)}
		for _, l := range r.Languages[:min(len(r.Languages), maxRuntimes)] {
			list[i].Languages = append(list[i].Languages, cut(l, maxType))
		}
	}
	return list, nil
}

// Overseer looks after the processes of an instance. Only children that run
// processes answer it.
func (in *Instance) Overseer() sandbox.ProcessManager { return overseer{in} }

type overseer struct{ in *Instance }

// Processes lists what the instance's programs left.
func (o overseer) Processes(ctx context.Context) ([]sandbox.Process, error) {
	a, err := o.in.client.manage(ctx, ManageBody{Op: ManageList, Instance: o.in.id})
	if err != nil {
		return nil, err
	}
	list := a.Processes[:min(len(a.Processes), maxProcesses)]
	for i := range list {
		list[i].Command = cut(list[i].Command, maxCommand)
		list[i].Memory, list[i].CPU = max(list[i].Memory, 0), max(list[i].CPU, 0)
	}
	return list, nil
}

// Signal sends a signal to one of them.
func (o overseer) Signal(ctx context.Context, pid int, signal string) error {
	_, err := o.in.client.manage(ctx, ManageBody{Op: ManageSignal, Instance: o.in.id, PID: pid, Signal: signal})
	return err
}

// Printed gives what was printed between runs.
func (o overseer) Printed(ctx context.Context, from int64) (sandbox.Printed, error) {
	a, err := o.in.client.manage(ctx, ManageBody{Op: ManageRead, Instance: o.in.id, From: from})
	if err != nil {
		return sandbox.Printed{}, err
	}
	a.Printed.Data = a.Printed.Data[:min(len(a.Printed.Data), MaxPrinted)]
	a.Printed.From = max(a.Printed.From, from)
	return a.Printed, nil
}

package wire

import (
	"context"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// mostTerminals is how many a list tells of at most.
const mostTerminals = sandbox.MaxTerminals + sandbox.MaxEndedTerminals

// Terminals looks after the terminals of the instance's machine. Only children that have
// a machine of their own answer it.
func (in *Instance) Terminals() sandbox.TerminalHost { return terminals{in} }

type terminals struct{ in *Instance }

func (t terminals) manage(ctx context.Context, body ManageBody) ([]sandbox.Terminal, error) {
	body.Instance = t.in.id
	a, err := t.in.client.manage(ctx, body)
	if err != nil {
		return nil, err
	}
	list := a.Terminals[:min(len(a.Terminals), mostTerminals)]
	for i := range list {
		list[i].Command = cut(list[i].Command, maxCommand)
		list[i].ExitCode &= 0xFF
		list[i].Printed = max(list[i].Printed, 0)
	}
	return list, nil
}

// OpenTerminal starts a program at a new terminal.
func (t terminals) OpenTerminal(ctx context.Context, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	list, err := t.manage(ctx, ManageBody{Op: ManageOpenTerminal, Open: spec})
	if err != nil {
		return sandbox.Terminal{}, err
	}
	if len(list) != 1 {
		return sandbox.Terminal{}, fault.New(fault.Internal, "the machine does not say which terminal it opened")
	}
	return list[0], nil
}

// Terminals lists them.
func (t terminals) Terminals(ctx context.Context) ([]sandbox.Terminal, error) {
	return t.manage(ctx, ManageBody{Op: ManageTerminals})
}

// ResizeTerminal changes the size of one.
func (t terminals) ResizeTerminal(ctx context.Context, id uint32, size sandbox.TerminalSize) error {
	_, err := t.manage(ctx, ManageBody{Op: ManageResize, Terminal: id, Size: size})
	return err
}

// AttachTerminal connects to one.
func (t terminals) AttachTerminal(ctx context.Context, id uint32, from int64) (sandbox.TerminalStream, error) {
	if id == 0 {
		return nil, fault.New(fault.NotFound, "there is no terminal 0")
	}
	s, a, err := t.in.client.dial(ctx, DialBody{Terminal: id, From: max(from, 0)})
	if err != nil {
		return nil, err
	}
	return &terminalStream{Stream: s, from: max(a.From, 0)}, nil
}

type terminalStream struct {
	*Stream
	from int64
}

// From is where the stream began.
func (s *terminalStream) From() int64 { return s.from }

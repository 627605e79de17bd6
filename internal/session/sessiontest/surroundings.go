// Package sessiontest has what tests surround sessions with.
package sessiontest

import (
	"context"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Tools is a [session.Tools] of functions. A nil one does nothing.
type Tools struct {
	OnCall        func(ctx context.Context, run session.Run, c sandbox.Call) []byte
	OnAbandoned   func(owner session.Owner, id session.ID, execution string)
	OnInterrupted func(owner session.Owner, id session.ID, except string) (string, func())
}

// Call implements [session.Tools].
func (t *Tools) Call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	if t.OnCall == nil {
		return nil
	}
	return t.OnCall(ctx, run, c)
}

// Abandoned implements [session.Tools].
func (t *Tools) Abandoned(owner session.Owner, id session.ID, execution string) {
	if t.OnAbandoned != nil {
		t.OnAbandoned(owner, id, execution)
	}
}

// Interrupted implements [session.Tools].
func (t *Tools) Interrupted(owner session.Owner, id session.ID, except string) (string, func()) {
	if t.OnInterrupted == nil {
		return "", func() {}
	}
	return t.OnInterrupted(owner, id, except)
}

// Network is a [session.Network] of functions. Without OnCheck every rule is right; any
// other nil one does nothing.
type Network struct {
	OnCheck      func(rules []string) error
	OnMachine    func(owner session.Owner, id session.ID, settings session.Settings) *session.MachineNetwork
	OnUsed       func(owner session.Owner, id session.ID) (session.Traffic, bool)
	OnRefused    func(owner session.Owner, id session.ID) string
	OnDisconnect func(owner session.Owner, id session.ID)
}

// Check implements [session.Network].
func (n *Network) Check(rules []string) error {
	if n.OnCheck == nil {
		return nil
	}
	return n.OnCheck(rules)
}

// Machine implements [session.Network].
func (n *Network) Machine(owner session.Owner, id session.ID, settings session.Settings) *session.MachineNetwork {
	if n.OnMachine == nil {
		return nil
	}
	return n.OnMachine(owner, id, settings)
}

// Used implements [session.Network].
func (n *Network) Used(owner session.Owner, id session.ID) (session.Traffic, bool) {
	if n.OnUsed == nil {
		return session.Traffic{}, false
	}
	return n.OnUsed(owner, id)
}

// Refused implements [session.Network].
func (n *Network) Refused(owner session.Owner, id session.ID) string {
	if n.OnRefused == nil {
		return ""
	}
	return n.OnRefused(owner, id)
}

// Disconnect implements [session.Network].
func (n *Network) Disconnect(owner session.Owner, id session.ID) {
	if n.OnDisconnect != nil {
		n.OnDisconnect(owner, id)
	}
}

// Secrets is a [session.Secrets] of functions. A nil one does nothing.
type Secrets struct {
	OnChoose    func(owner session.Owner, wish *[]string) ([]string, error)
	OnGive      func(owner session.Owner, id session.ID, names []string, parent session.ID) error
	OnVariables func(owner session.Owner, id session.ID) (map[string]string, error)
	OnClean     func(owner session.Owner, id session.ID, text []byte) ([]byte, error)
}

// Choose implements [session.Secrets].
func (s *Secrets) Choose(owner session.Owner, wish *[]string) ([]string, error) {
	if s.OnChoose == nil {
		return nil, nil
	}
	return s.OnChoose(owner, wish)
}

// Give implements [session.Secrets].
func (s *Secrets) Give(owner session.Owner, id session.ID, names []string, parent session.ID) error {
	if s.OnGive == nil {
		return nil
	}
	return s.OnGive(owner, id, names, parent)
}

// Variables implements [session.Secrets].
func (s *Secrets) Variables(owner session.Owner, id session.ID) (map[string]string, error) {
	if s.OnVariables == nil {
		return nil, nil
	}
	return s.OnVariables(owner, id)
}

// Clean implements [session.Secrets].
func (s *Secrets) Clean(owner session.Owner, id session.ID, text []byte) ([]byte, error) {
	if s.OnClean == nil {
		return text, nil
	}
	return s.OnClean(owner, id, text)
}

package session

import (
	"context"
	"time"

	"paddock/internal/fault"
)

// Load is what a session takes at one moment, as the process knows that has it open.
type Load struct {
	// Open says that a process has it open; else only Traffic is known.
	Open bool `json:"open,omitempty"`
	// Running is 1 while a program runs in it; Queued is how many wait for their turn.
	Running int `json:"running,omitempty"`
	Queued  int `json:"queued,omitempty"`
	// Memory is what its machine has now, in bytes; that of interpreters without a machine
	// counts as the limits count it.
	Memory int64 `json:"memory,omitempty"`
	// Booted is when its machine was booted, and CPU the machine's time since then. A zero
	// Booted: there is no machine, and no CPU is measured.
	Booted  time.Time     `json:"booted,omitzero"`
	CPU     time.Duration `json:"cpu,omitempty"`
	Traffic Traffic       `json:"traffic,omitzero"`
}

// Load measures a session, also where another process has it open. It wakes no session and
// waits for no program. A process that has the session and does not answer is a
// fault.Unavailable.
func (m *Manager) Load(ctx context.Context, owner Owner, id ID) (l Load, err error) {
	r, err := m.records.read(key{owner, id})
	if err != nil {
		return Load{}, err
	}
	err = m.withProcesses(ctx, owner, id, ipcRequest{Op: opLoad}, func(s *session) error {
		l = s.measure(ctx)
		return nil
	}, func(a ipcResponse) { l = a.Load })
	if !l.Open {
		l.Traffic = r.Traffic
	}
	return l, err
}

// measure measures a session that is open here.
func (s *session) measure(ctx context.Context) Load {
	l := Load{Open: true, Traffic: s.egress.total()}
	l.Running, l.Queued = s.turns.counts()
	l.Memory = s.manager.memory.Of(string(s.owner))[string(s.id)]
	at, err := s.residence.meter(ctx)
	if err == nil {
		l.Memory, l.Booted, l.CPU = at.Memory, at.Booted, at.CPU
	} else if fault.KindOf(err) != fault.NotFound {
		s.manager.log.Debug("a machine does not tell what it takes", "session", s.id, "cause", fault.CauseOf(err))
	}
	return l
}

package session

import (
	"cmp"
	"log/slog"
	"sync"

	"paddock/internal/fault"
)

// Traffic is what a session's programs have sent and received.
type Traffic struct {
	Requests int64 `json:"requests,omitempty"`
	Sent     int64 `json:"sent,omitempty"`     // bytes
	Received int64 `json:"received,omitempty"` // bytes
}

// maxRules bounds the rules that a session is made with.
const maxRules = 1000

// checkNetwork tells what is wrong with the rules that a session is to be made with.
func (c *Config) checkNetwork(rules *[]string) error {
	switch network := c.Network; {
	case rules == nil || len(*rules) == 0:
		return nil
	case len(*rules) > maxRules:
		return fault.New(fault.Invalid, "a session has at most %d rules for its network", maxRules)
	case network == nil:
		return fault.New(fault.Denied, "there is no network here")
	default:
		_, err := guard("looking at a network", func() (struct{}, error) { return struct{}{}, network.Check(*rules) })
		return err
	}
}

// importedNetwork gives the rules of a session that is imported, and why it has not those that
// it had; those that are not allowed here now may be later.
func (c *Config) importedNetwork(rules *[]string) (*[]string, string) {
	switch err := c.checkNetwork(rules); {
	case err == nil:
		return rules, ""
	case fault.KindOf(err) == fault.Denied && len(*rules) <= maxRules:
		return rules, "not all hosts that it may reach can be reached here: " + fault.Of(err).Message
	default:
		return &[]string{}, "it reaches no hosts: " + fault.Of(err).Message
	}
}

// egress is what one session's programs send and receive, as the Config's Network counts it.
// Any goroutine may call its methods.
type egress struct {
	key
	network Network // nil: there is none, and nothing is counted
	log     *slog.Logger

	mu   sync.Mutex // guards what follows; taken last
	last Traffic    // what was counted when somebody last looked, in any process
}

// total is what the session has sent and received in all.
func (e *egress) total() Traffic {
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	if e.network == nil {
		return last
	}
	now, err := guard("counting what was sent", func() (Traffic, error) {
		if n, ok := e.network.Used(e.owner, e.id); ok {
			return n, nil
		}
		return last, nil
	})
	if err != nil {
		e.log.Error("what a session sent is not counted", "session", e.id, "cause", fault.CauseOf(err))
		return last
	}
	return now
}

// note remembers the total, for when the Network does not know it any more, and gives it.
func (e *egress) note() Traffic {
	now := e.total()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = now
	return now
}

// refused is what the session's programs were refused since it was last asked for.
func (e *egress) refused() string {
	if e.network == nil {
		return ""
	}
	text, err := guard("asking what was refused", func() (string, error) { return e.network.Refused(e.owner, e.id), nil })
	if err != nil {
		e.log.Error("what a session was refused is not known", "session", e.id, "cause", fault.CauseOf(err))
	}
	return text
}

// disconnect ends what the session's programs are connected to.
func (e *egress) disconnect() {
	if e.network == nil {
		return
	}
	_, err := guard("closing a network", func() (struct{}, error) { e.network.Disconnect(e.owner, e.id); return struct{}{}, nil })
	if err != nil {
		e.log.Error("a session's network was not closed", "session", e.id, "cause", fault.CauseOf(err))
	}
}

// noteTraffic has the record tell what was sent and received.
func (s *session) noteTraffic() {
	t := s.egress.note()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Traffic = t
}

// since is what was sent and received after an earlier moment, in bytes.
func (t Traffic) since(earlier Traffic) int64 {
	return max(t.Sent+t.Received-earlier.Sent-earlier.Received, 0)
}

// lines puts two texts below each other, each of which may be empty.
func lines(one, other string) string {
	if one == "" || other == "" {
		return cmp.Or(one, other)
	}
	return one + "\n" + other
}

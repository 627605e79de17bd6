package session

import (
	"cmp"

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

// traffic is what the session has sent and received in all.
func (s *session) traffic() Traffic {
	s.mu.Lock()
	t := s.record.Traffic
	s.mu.Unlock()
	network := s.manager.config.Network
	if network == nil {
		return t
	}
	now, err := guard("counting what was sent", func() (Traffic, error) {
		if n, ok := network.Used(s.owner, s.id); ok {
			return n, nil
		}
		return t, nil
	})
	if err != nil {
		s.manager.log.Error("what a session sent is not counted", "session", s.id, "cause", fault.CauseOf(err))
		return t
	}
	return now
}

// noteTraffic has the record tell it.
func (s *session) noteTraffic() Traffic {
	t := s.traffic()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Traffic = t
	return t
}

// refused is what the session's programs were refused since it was last asked for.
func (s *session) refused() string {
	network := s.manager.config.Network
	if network == nil {
		return ""
	}
	text, err := guard("asking what was refused", func() (string, error) { return network.Refused(s.owner, s.id), nil })
	if err != nil {
		s.manager.log.Error("what a session was refused is not known", "session", s.id, "cause", fault.CauseOf(err))
	}
	return text
}

// disconnect ends what the session's programs are connected to.
func (s *session) disconnect() {
	s.noteTraffic()
	if network := s.manager.config.Network; network != nil {
		_, err := guard("closing a network", func() (struct{}, error) { network.Disconnect(s.owner, s.id); return struct{}{}, nil })
		if err != nil {
			s.manager.log.Error("a session's network was not closed", "session", s.id, "cause", fault.CauseOf(err))
		}
	}
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

package session

import (
	"maps"

	"paddock/internal/sandbox"
)

// addNetwork completes the description of an interpreter in a machine: there is a way
// out, where the Config has one. It is called before the environment is filled.
func (s *session) addNetwork(spec *sandbox.Spec, settings Settings) {
	network := s.manager.config.Network
	if network == nil || !hasMachines(s.backend) {
		return
	}
	if n := network.Machine(s.owner, s.id, settings); n != nil {
		spec.Proxy = n.Proxy
		maps.Copy(spec.Env, n.Env)
	}
}

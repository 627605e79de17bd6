package session

import (
	"maps"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// maxSecretNames bounds the secrets that a session is made with.
const maxSecretNames = 100

// chooseSecrets gives what a session has of secrets that is made with a wish.
func (c *Config) chooseSecrets(owner Owner, wish *[]string) (*[]string, error) {
	secrets := c.Secrets
	switch {
	case wish != nil && len(*wish) > maxSecretNames:
		return nil, fault.New(fault.Invalid, "a session has at most %d secrets", maxSecretNames)
	case secrets == nil && wish != nil && len(*wish) > 0:
		return nil, fault.New(fault.Denied, "there are no secrets here")
	case secrets == nil:
		return nil, nil
	}
	names, err := guard("looking for secrets", func() ([]string, error) { return secrets.Choose(owner, wish) })
	if err != nil || len(names) == 0 {
		return nil, err
	}
	return &names, nil
}

// giveSecrets has a session that is being made, and is alone in its folder, have the
// secrets of its settings; none: nor those that are left of another of its name.
func (s *session) giveSecrets(from *beginning) error {
	secrets := s.manager.config.Secrets
	if secrets == nil {
		return nil
	}
	var names []string
	if has := s.record.Settings.Secrets; has != nil {
		names = slices.Clone(*has)
	}
	var parent ID
	if from != nil {
		parent = from.parent
	}
	_, err := guard("giving secrets", func() (struct{}, error) { return struct{}{}, secrets.Give(s.owner, s.id, names, parent) })
	return err
}

// hasSecrets reports whether there is anything in its programs' environment that is this
// session's alone.
func (s *session) hasSecrets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Settings.Secrets != nil && s.manager.config.Secrets != nil
}

// spec describes an interpreter of the session.
func (i *interpreters) spec(runtime string) sandbox.Spec {
	s := i.s
	spec := i.bare(runtime)
	if !s.hasSecrets() {
		return spec
	}
	variables, err := guard("looking for secrets", func() (map[string]string, error) { return s.manager.config.Secrets.Variables(s.owner, s.id) })
	if err != nil {
		s.manager.log.Error("a session's programs do not find its secrets", "session", s.id, "cause", fault.CauseOf(err))
	}
	maps.Copy(spec.Env, variables)
	return spec
}

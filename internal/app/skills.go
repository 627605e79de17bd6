package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"paddock/internal/config"
	"paddock/internal/egress"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/skill"
	"paddock/skills"
)

// Skills is where skills are kept. It observes sessions ([session.Observer]): it counts the
// skills that programs use.
type Skills struct {
	*skill.Store
	transport *egress.Transport
	helpers   *helper.Runner // nil: they are another part's
	log       *slog.Logger
}

// NewSkills opens the store of skills. more are hosts on the public Internet that may be
// reached in addition to those of the configuration. Without helpers (nil) it starts its own.
func (env *Env) NewSkills(helpers *helper.Runner, more ...string) (*Skills, error) {
	s := &Skills{log: env.Log}
	if helpers == nil {
		var err error
		if helpers, err = newHelpers(); err != nil {
			return nil, err
		}
		s.helpers = helpers
	}
	c := env.Config.Skills
	policy, err := egress.Parse(append(withGitHub(c.Allow), more...), egress.Rights{All: true, Private: true})
	if err != nil {
		return nil, err // config has looked at its part of it
	}
	names, digests := readySkills()
	sc := skill.Config{
		Dir: filepath.Join(env.StateDir, "skills"), BuiltinDigests: digests,
		Builtin: sync.OnceValue(func() []*skill.Installed { return env.builtinSkills(names) }),
		Helpers: helpers,
		GitHub:  skill.GitHubConfig{API: c.GitHubAPI, Token: c.GitHubToken},
	}
	if !policy.Empty() {
		s.transport = egress.NewTransport(policy, egress.Options{})
		sc.Transport = s.transport
	}
	s.Store = skill.NewStore(sc)
	return s, nil
}

// gitHub are the hosts that a skill of GitHub comes from.
var gitHub = []string{"github.com", "api.github.com", "codeload.github.com"}

// withGitHub adds to rules what github.com stands for.
func withGitHub(rules []string) []string {
	all := append([]string{}, rules...)
	for _, r := range rules {
		if r == gitHub[0] {
			all = append(all, gitHub[1:]...)
		}
	}
	return all
}

// readySkills are the names of those that come with paddock, and their digests; nil:
// these were not written down.
func readySkills() (names, digests []string) {
	names = skills.Available()
	for _, name := range names {
		digest := skills.Digest(name)
		if digest == "" {
			return names, nil
		}
		digests = append(digests, digest)
	}
	return names, digests
}

// builtinSkills are those that come with paddock. One that cannot be read is left out.
func (env *Env) builtinSkills(names []string) (all []*skill.Installed) {
	for _, name := range names {
		folder, err := skills.Open(name)
		var one *skill.Installed
		if err == nil {
			one, err = skill.ReadBuiltin(name, folder, skills.Digest(name))
		}
		if err != nil {
			env.Log.Error("a skill of paddock's own cannot be read", "skill", name, "cause", err)
			continue
		}
		all = append(all, one)
	}
	return all
}

// Close ends connections that nothing goes over.
func (s *Skills) Close() error {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return s.helpers.Close()
}

// folder shows programs the skills as modules.
func (s *Skills) folder() session.Folder {
	fill := func(ctx context.Context, owner session.Owner, id session.ID, dir string) error {
		if id == "" {
			return s.Share(ctx, string(owner), dir)
		}
		return s.Provide(ctx, string(owner), dir)
	}
	return session.Folder{Name: skill.MountFolder, Aliases: []string{sitePackages + skill.MountFolder}, Refresh: fill, Shared: true}
}

// Record implements [session.Observer].
func (s *Skills) Record(_ context.Context, e session.Event) error {
	if e.Action == session.Executing && !e.Begun && e.Err == nil && e.Exit.Cause != sandbox.Waiting { // which is told of again
		s.count(e)
	}
	return nil
}

// Removed implements [session.Observer].
func (s *Skills) Removed(session.Owner, session.ID) {}

// named matches where a program names a skill: skills.name, skills/name, or what
// follows "from skills import".
var named = regexp.MustCompile(`\bskills(?:[./]|\s+import\s+)([A-Za-z0-9_-]+)`)

// count counts a program that has run as a use of each skill that it names.
func (s *Skills) count(e session.Event) {
	if !strings.Contains(e.Code, skill.MountFolder) {
		return
	}
	mentioned := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(e.Code, 1000) {
		mentioned[m[1]] = true
	}
	if len(mentioned) == 0 {
		return
	}
	all, err := s.List(string(e.Owner))
	for _, r := range all {
		if mentioned[r.Name] || mentioned[r.Package()] {
			err = errors.Join(err, s.Used(string(e.Owner), r.Name, ranWell(e.Exit)))
		}
	}
	if err != nil {
		s.log.Warn("the use of a skill was not counted", "session", e.Session, "cause", fault.CauseOf(err))
	}
}

// HostsOf are the hosts that a source names: whoever types it at a command line allows
// them, as far as they are public.
func HostsOf(from skill.Source, c *config.Config) []string {
	if from.Kind == skill.GitHub {
		if c.Skills.GitHubAPI != "" {
			return nil // where that is, its operator says in skills.allow
		}
		return gitHub
	}
	if host := from.Host(); host != "" {
		return []string{host}
	}
	return nil
}

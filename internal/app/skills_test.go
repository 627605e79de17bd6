package app

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"paddock/internal/config"
	"paddock/internal/session"
	"paddock/internal/skill"
)

func TestWhichProgramsCountAsUses(t *testing.T) {
	p := &Env{Config: new(config.Config), StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	s, err := p.NewSkills(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save("alice", "word-count", "", "x = 1", "Counts.", nil); err != nil {
		t.Fatal(err)
	}
	for code, counts := range map[string]bool{
		"from skills.word_count import x": true, "from skills import word_count as w": true, "import('skills/word-count')": true, "cat /skills/word-count/SKILL.md": true,
		"skills.word_counter": false, "myskills.word_count": false, "word_count": false,
	} {
		before := usesOf(t, s)
		if err := s.Record(t.Context(), session.Event{Action: session.Executing, Owner: "alice", Code: code}); err != nil {
			t.Fatal(err)
		}
		if got := usesOf(t, s); (got > before) != counts {
			t.Errorf("%q: %d after %d", code, got, before)
		}
	}
}

func TestWhichHostsASourceMayCallFor(t *testing.T) {
	c := new(config.Config)
	for text, want := range map[string][]string{
		"github:a/b/c":                       {"github.com", "api.github.com", "codeload.github.com"},
		"https://example.com:8443/a.zip":     {"example.com:8443"},
		"git+https://git.example.com/x.git":  {"git.example.com"},
		"http://127.0.0.1:80/SKILL.md":       {"127.0.0.1:80!private"},
		"/some/folder":                       nil,
		"https://169.254.169.254/a/SKILL.md": {"169.254.169.254"},
	} {
		from, err := skill.ParseSource(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := HostsOf(from, c); !slices.Equal(got, want) {
			t.Errorf("%s gives %v", text, got)
		}
	}
	if got := withGitHub([]string{"example.com", "github.com"}); strings.Join(got, " ") != "example.com github.com api.github.com codeload.github.com" {
		t.Errorf("github.com stands for %v", got)
	}
}

func usesOf(t *testing.T, s *Skills) int64 {
	t.Helper()
	in, err := s.Open("alice", "word-count")
	if err != nil {
		t.Fatal(err)
	}
	return in.Counts.Used
}

package session_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// cutShort is who knows what runs called, and is asked at each opening.
type cutShort struct {
	mu    sync.Mutex // guards what follows
	news  string     // until it was told
	asked []string   // owners, sessions and the runs that wait
}

func (c *cutShort) config(dir string) session.Config {
	return session.Config{Dir: dir, Tools: &sessiontest.Tools{OnInterrupted: func(owner session.Owner, id session.ID, but string) (string, func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, fmt.Sprintf("%s %s %q", owner, id, but))
		if c.news == "panic" {
			panic("it was asked for")
		}
		return c.news, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.news = ""
		}
	}}}
}

func (c *cutShort) left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.news
}

func TestWhatRunsCalledThatWereCutShortIsToldOnce(t *testing.T) {
	const news = "The server ended during the run x-1."
	for name, c := range map[string]struct {
		before func(t *testing.T, m *session.Manager, id session.ID)
		news   string
		want   bool
	}{
		"by the next result": {func(*testing.T, *session.Manager, session.ID) {}, news, true},
		"after a reset": {func(t *testing.T, m *session.Manager, id session.ID) {
			if _, err := m.Reset(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
		}, news, true},
		"after it slept again": {func(t *testing.T, m *session.Manager, id session.ID) {
			if _, err := m.Details(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
			if err := m.Sleep(alice, id); err != nil {
				t.Fatal(err)
			}
		}, news, true},
		"by what undoes something": {func(t *testing.T, m *session.Manager, id session.ID) {
			if r := undo(t, m, id); !strings.Contains(r.Notice, news) {
				t.Errorf("it is told %q", r.Notice)
			}
		}, news, false},
		"not where nothing was called":       {func(*testing.T, *session.Manager, session.ID) {}, "", false},
		"not where it cannot be told at all": {func(*testing.T, *session.Manager, session.ID) {}, "panic", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, knows := t.TempDir(), &cutShort{}
			m := manager(t, knows.config(dir), sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 1")
			if len(knows.asked) != 0 {
				t.Errorf("of a new session it was asked: %q", knows.asked)
			}
			knows.news = c.news
			m = reopened(t, m, dir, knows.config(dir))
			c.before(t, m, id)
			r := execute(t, m, id, "x = 2")
			if got := strings.Count(r.Notice, news); got != map[bool]int{true: 1}[c.want] {
				t.Errorf("the notice is %q", r.Notice)
			}
			if c.news == news && knows.left() != "" {
				t.Error("it is not known that it was told")
			}
			if want := fmt.Sprintf("%s %s %q", alice, id, ""); len(knows.asked) == 0 {
				t.Error("len(knows.asked): got 0, want more")
			} else if knows.asked[0] != want {
				t.Errorf("knows.asked[0]: got %v, want %v", knows.asked[0], want)
			}
			if r := execute(t, m, id, "x = 3"); strings.Contains(r.Notice, news) {
				t.Errorf("it is told again: %q", r.Notice)
			}
		})
	}
}

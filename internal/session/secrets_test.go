package session_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// keeper gives sessions secrets, whose placeholders say whose they are.
type keeper struct {
	mu    sync.Mutex // guards what follows
	given map[session.ID]map[string]string
	gifts []string
}

func (k *keeper) config() session.Config {
	k.given = map[session.ID]map[string]string{}
	return session.Config{
		Secrets: &sessiontest.Secrets{
			OnChoose: func(owner session.Owner, wish *[]string) ([]string, error) {
				if wish == nil {
					return []string{"USUAL"}, nil
				}
				if slices.Contains(*wish, "EVIL") {
					return nil, fault.New(fault.Denied, "EVIL is not for sessions of %s", owner)
				}
				return *wish, nil
			},
			OnGive: func(owner session.Owner, id session.ID, names []string, parent session.ID) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				if slices.Contains(names, "BROKEN") {
					return fault.New(fault.Unavailable, "it cannot be given")
				}
				if len(names) > 0 {
					k.gifts = append(k.gifts, strings.TrimSpace(fmt.Sprint(owner, " ", names, " ", parent)))
				}
				k.given[id] = map[string]string{}
				for _, name := range names {
					k.given[id][name] = name + " of " + string(id)
				}
				return nil
			},
			OnVariables: func(_ session.Owner, id session.ID) (map[string]string, error) {
				k.mu.Lock()
				defer k.mu.Unlock()
				return k.given[id], nil
			},
		},
		Env: map[string]string{"USUAL": "the operator's"},
	}
}

func TestASessionHasTheSecretsThatItWasMadeWith(t *testing.T) {
	k := &keeper{}
	c := k.config()
	c.Dir = t.TempDir()
	m := manager(t, c, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	prints(t, m, id, `print(env("USUAL"))`, "USUAL of "+string(id))
	has := func(id session.ID, want ...string) {
		t.Helper()
		i, err := m.Info(alice, id)
		if err != nil {
			t.Fatal(err)
		}
		switch got := i.Settings.Secrets; {
		case len(want) == 0 && got != nil:
			t.Errorf("secrets: got %v, want none", *got)
		case len(want) > 0 && got == nil:
			t.Errorf("secrets: got none, want %v", want)
		case len(want) > 0 && !slices.Equal(*got, want):
			t.Errorf("secrets: got %v, want %v", *got, want)
		}
	}
	has(id, "USUAL")
	some, err := m.Create(t.Context(), alice, "", session.Settings{Secrets: &[]string{"ONE", "TWO"}})
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, some.ID, `print(env("ONE"), env("TWO"), env("USUAL"))`, fmt.Sprintf("ONE of %[1]s TWO of %[1]s the operator's", some.ID))
	none, err := m.Create(t.Context(), alice, "", session.Settings{Secrets: &[]string{}})
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, none.ID, `print(env("USUAL"))`, "the operator's")
	has(none.ID)
	forks, err := m.Fork(t.Context(), alice, some.ID, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	has(forks[0].ID, "ONE", "TWO")
	if want := []string{"alice [USUAL]", "alice [ONE TWO]", "alice [ONE TWO] " + string(some.ID)}; !slices.Equal(k.gifts, want) {
		t.Errorf("given was %q", k.gifts)
	}
	if err := m.Sleep(alice, some.ID); err != nil {
		t.Fatal(err)
	}
	prints(t, m, some.ID, `print(env("ONE"))`, "ONE of "+string(some.ID))
	if len(k.gifts) != 3 {
		t.Errorf("a session that woke up was given %q", k.gifts)
	}
}

func TestASessionThatMayNotHaveASecretIsNotMade(t *testing.T) {
	k := &keeper{}
	m := manager(t, k.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "here")
	for wish, want := range map[string]fault.Kind{"EVIL": fault.Denied, "BROKEN": fault.Unavailable} {
		if _, err := m.Create(t.Context(), alice, "other", session.Settings{Secrets: &[]string{wish}}); fault.KindOf(err) != want {
			t.Errorf("%s: %v", wish, err)
		}
	}
	if _, err := m.Create(t.Context(), alice, "other", session.Settings{Secrets: ptr(slices.Repeat([]string{"A"}, 101))}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("too many: %v", err)
	}
	if _, err := m.Create(t.Context(), alice, id, session.Settings{Secrets: &[]string{"ONE"}}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a name that is taken: %v", err)
	}
	if len(k.gifts) != 1 {
		t.Errorf("given was %q", k.gifts)
	}
	if _, err := m.Create(t.Context(), alice, "other", session.Settings{}); err != nil {
		t.Error(err)
	}
	without := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	if _, err := without.Create(t.Context(), alice, "", session.Settings{Secrets: &[]string{"ONE"}}); fault.KindOf(err) != fault.Denied {
		t.Errorf("where there are none: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestWhatIsImportedHasNoSecrets(t *testing.T) {
	k := &keeper{}
	m := manager(t, k.config(), sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	i, notice, err := m.Import(t.Context(), alice, "", &archive)
	if err != nil {
		t.Fatal(err)
	}
	if i.Settings.Secrets != nil {
		t.Fatalf("i.Settings.Secrets: got %+v, want nil", i.Settings.Secrets)
	}
	if !strings.Contains(notice, "none of the secrets that it had") {
		t.Fatalf("notice: got %q, want %q in it", notice, "none of the secrets that it had")
	}
	prints(t, m, i.ID, `print(env("USUAL"))`, "the operator's")
}

// A machine that was booted ahead has no owner, and its programs find whose it became.
func TestAMachineThatWasBootedAheadHasItsSessionsSecrets(t *testing.T) {
	k := &keeper{}
	c := k.config()
	c.Pool = 2
	pooled(t, c, func(t *testing.T, m *session.Manager, b *ahead) {
		for range 2 {
			pass(time.Second)
			id := create(t, m, alice, "")
			prints(t, m, id, `print(env("USUAL"))`, "USUAL of "+string(id))
			prints(t, m, id, `print(env("USUAL"))`, "USUAL of "+string(id))
		}
		if s := m.Stats(); s.PoolHits != 2 {
			t.Errorf("counted is %+v", s)
		}
	})
}

package joined

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"paddock/internal/mcpserver"
	"paddock/tests/paddocktest"
)

// asks is a program that asks for a URL, and prints the answer, or the status and why it
// was refused.
func asks(language, url string) string {
	if language == "python" {
		return fmt.Sprintf(`
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen(%q).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.headers["X-Paddock-Denied"].split(":")[0])
except urllib.error.URLError as e:
    print("refused" if any(word in str(e.reason) for word in ("not among", "no network", "403")) else e.reason)
`, url)
	}
	return fmt.Sprintf(`
try {
  const r = await fetch(%q);
  console.log(r.ok ? await r.text() : r.status + " " + r.headers.get("x-paddock-denied").split(":")[0]);
} catch (e) { console.log(/not among|no network|403|refused/.test(e.message + (e.cause ? e.cause.message : "")) ? "refused" : e.message + e.cause); }
`, url)
}

var languages = []string{"python", "javascript"}

var isolations = []string{"wasm", "linux"}

func inEach(t *testing.T, f func(t *testing.T, isolation string)) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			paddocktest.Require(t, isolation)
			f(t, isolation)
		})
	}
}

func TestProgramsReachWhatTheOperatorAllows(t *testing.T) {
	inEach(t, func(t *testing.T, isolation string) {
		plain, secure, closed := open(t, "plain", false), open(t, "secure", true), open(t, "closed", false)
		rule := "GET " + plain.address + "/open/*!private"
		m := start(t, t.TempDir(), isolation, []string{rule, secure.rule()}, believed(t, secure))
		id := m.create(t, nil)
		for _, language := range languages {
			e := m.prints(t, id, language, asks(language, plain.URL+"/open/a"), "plain GET /open/a")
			switch {
			case e.Usage.EgressBytes < 50:
				t.Errorf("%s: it used: e.Usage.EgressBytes = %v, want at least 50: %+v, %q",
					language, e.Usage.EgressBytes, e.Usage, e.Notice)
			case e.Usage.ToolCalls != 0:
				t.Errorf("%s: it used: e.Usage.ToolCalls = %v, want 0: %+v, %q",
					language, e.Usage.ToolCalls, e.Usage, e.Notice)
			case e.Notice != "":
				t.Errorf(`%s: it used: e.Notice = %q, want ""`, language, e.Notice)
			}
			m.prints(t, id, language, asks(language, secure.URL+"/b"), "secure GET /b")
			e = m.prints(t, id, language, asks(language, plain.URL+"/shut"), "403 request")
			if !strings.Contains(e.Notice, "GET /shut") {
				t.Errorf(`%s: e.Notice = %q, want "GET /shut" in it`, language, e.Notice)
			} else if !strings.Contains(e.Notice, "network.allow") {
				t.Errorf(`%s: e.Notice = %q, want "network.allow" in it`, language, e.Notice)
			}
			e = m.run(t, id, language, asks(language, closed.URL+"/"))
			if out := strings.TrimSpace(e.Stdout); out != "403 host" && out != "refused" {
				t.Errorf(`%s: it prints %q, want "403 host" or "refused"`, language, out)
			}
			refusal := closed.address + " is not among the hosts that may be reached: the operator can allow it"
			if !strings.Contains(e.Notice, refusal) {
				t.Errorf("%s: it is told %q, want %q in it", language, e.Notice, refusal)
			}
		}
		for target, want := range map[string][]string{
			plain.URL: {"allowed " + rule, "denied", "allowed " + rule, "denied"}, secure.URL: {"allowed " + secure.rule(), "allowed " + secure.rule()},
		} {
			if got := requests(t, m.state, id, target); !slices.Equal(got, want) {
				t.Errorf("of %s is written down %q", target, got)
			}
		}
	})
}

// TestASessionIsNarrowed has a session reach less than the operator allows, its fork too,
// and in another process under other rules.
func TestASessionIsNarrowed(t *testing.T) {
	inEach(t, func(t *testing.T, isolation string) {
		first, second := open(t, "first", false), open(t, "second", false)
		state := t.TempDir()
		m := start(t, state, isolation, []string{first.rule(), second.rule()}, "PADDOCK_TOOLS_ENABLED=core,history")
		id := m.create(t, []string{first.address})
		switch failed := m.call(t, "create_session", map[string]any{"network": []string{"evil.test"}}, nil); {
		case !strings.Contains(failed, `"code":"denied"`):
			t.Errorf("more than the operator allows is answered: failed = %q, want %q in it",
				failed, `"code":"denied"`)
		case !strings.Contains(failed, first.rule()):
			t.Errorf("more than the operator allows is answered: failed = %q, want %q in it",
				failed, first.rule())
		case !strings.Contains(failed, "network.allow"):
			t.Errorf(`more than the operator allows is answered: failed = %q, want "network.allow" in it`,
				failed)
		}
		var info struct{ Network []string }
		if m.call(t, "get_workspace_info", map[string]any{"session_id": id}, &info); !slices.Equal(info.Network, []string{first.address}) {
			t.Errorf("it reaches %v", info.Network)
		}
		var forked struct{ Forks []string }
		m.run(t, id, "python", "x = 1")
		if failed := m.call(t, "fork_session", map[string]any{"session_id": id}, &forked); failed != "" {
			t.Fatalf(`failed = %q, want ""`, failed)
		} else if len(forked.Forks) != 1 {
			t.Fatalf("len(forked.Forks) = %d, want 1", len(forked.Forks))
		}
		reaches := func(m *model, id string, one, other bool) {
			t.Helper()
			for s, can := range map[site]bool{first: one, second: other} {
				out := strings.TrimSpace(m.run(t, id, "python", asks("python", s.URL+"/")).Stdout)
				if got := strings.HasSuffix(out, " GET /"); got != can {
					t.Errorf("%s answers: got %v, want %v: %q", s.address, got, can, out)
				} else if !got && out != "403 host" && out != "refused" {
					t.Errorf(`%s is refused with %q, want "403 host" or "refused"`, s.address, out)
				}
			}
		}
		reaches(m, id, true, false)
		reaches(m, forked.Forks[0], true, false)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		later := start(t, state, isolation, []string{second.rule()})
		reaches(later, id, false, false)
		if err := later.Close(); err != nil {
			t.Fatal(err)
		}
		reaches(start(t, state, isolation, []string{first.rule()}), id, true, false)
	})
}

func TestWithoutAllowanceThereIsNoNetwork(t *testing.T) {
	inEach(t, func(t *testing.T, isolation string) {
		s := open(t, "closed", false)
		m := start(t, t.TempDir(), isolation, nil)
		for _, language := range languages {
			e := m.run(t, m.create(t, nil), language, asks(language, s.URL+"/"))
			if strings.Contains(e.Stdout, "GET") {
				t.Errorf("it prints %q, want no answer in it", e.Stdout)
			} else if isolation == "wasm" && strings.TrimSpace(e.Stdout) != "refused" {
				t.Errorf(`it prints %q, want "refused"`, e.Stdout)
			}
		}
		if failed := m.call(t, "create_session", map[string]any{"network": []string{"a.test"}}, nil); !strings.Contains(failed, "programs have no network here") {
			t.Errorf(`asking for hosts is answered: failed = %q, want "programs have no network here" in it`, failed)
		} else if !strings.Contains(failed, "PADDOCK_NET_ALLOW") {
			t.Errorf(`asking for hosts is answered: failed = %q, want "PADDOCK_NET_ALLOW" in it`, failed)
		}
	})
}

// run runs a program that may end as it likes.
func (m *model) run(t testing.TB, id, language, code string) (e mcpserver.Execution) {
	t.Helper()
	if failed := m.call(t, "execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": int(paddocktest.Timeout.Seconds())}, &e); failed != "" {
		t.Fatal(failed)
	}
	return e
}

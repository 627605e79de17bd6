package crash

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kept are the files that say what runs called.
func (p *waitingRun) kept() []string {
	files, err := filepath.Glob(filepath.Join(p.state, "servers", "calls", "*", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	return files
}

// told runs a program, which prints "here", and gives what its result tells besides.
func (p *waitingRun) told() string {
	p.t.Helper()
	code := map[string]string{"python": "print('here')", "javascript": "console.log('here')"}[p.language]
	a, err := p.c.answer(p.run(code, 60))
	switch {
	case err != nil:
		p.t.Fatal(err)
	case a.failed() != nil:
		p.t.Fatalf("a.failed() = %+v, want nil: %+v, %s", *a.failed(), a, p.c.said())
	case a.Stdout != "here\n":
		p.t.Fatalf("a.Stdout = %q, want %q", a.Stdout, "here\n")
	}
	return a.Notice
}

// TestWhatARunCalledThatWasKilledIsToldOnce kills paddock while a run goes on that was
// never suspended: one of its calls was answered, of the other nobody knows.
func TestWhatARunCalledThatWasKilledIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		language string
		settings string // of the tool; whether somebody has to allow its calls
	}{
		"calls that somebody allowed": {"python", "tools.ask = [\"act\"]\n"},
		"calls that need nobody":      {"javascript", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTools(t, c.language, c.settings)
			p.hold("b")
			p.began = p.run(waitingPrograms[p.language], 60)
			if c.settings != "" {
				p.asked()
				p.grant()
			}
			p.until("one call is answered, and the other was sent", func() bool {
				return len(p.lines(answersFile)) == 1 && len(p.lines(callsFile)) == 2 && p.noted("answered")
			})
			p.c.kill()
			if err := os.Remove(filepath.Join(p.tools, heldFile)); err != nil {
				t.Fatal(err)
			}
			before := p.counted()

			other := p.start() // which uses another session
			other.must(t, "execute_code", map[string]any{"language": p.language, "code": "1"})
			if len(p.kept()) == 0 {
				t.Fatal("nothing is kept of the run after it was killed")
			}
			other.hangUp()

			p.c = p.start()
			notice := p.told()
			t.Log(notice)
			switch {
			case !strings.Contains(notice, "The server ended during the run x-"):
				t.Errorf(`notice = %q, want "The server ended during the run x-" in it`, notice)
			case !strings.Contains(notice, "may have been made; "):
				t.Errorf(`notice = %q, want "may have been made; " in it`, notice)
			case strings.Count(notice, `"counts/act" (call `) != 2:
				t.Errorf(`count of counts/act" (call  in notice = %v, want 2: %q`,
					strings.Count(notice, `"counts/act" (call `), notice)
			case !strings.Contains(notice, "was made. "):
				t.Errorf(`notice = %q, want "was made. " in it`, notice)
			case !strings.Contains(notice, "paddock audit ls --session "+p.session):
				t.Errorf("notice = %q, want %q in it", notice, "paddock audit ls --session "+p.session)
			}
			if left := p.kept(); len(left) != 0 {
				t.Errorf("after it was told there is left %q", left)
			}
			if again := p.told(); again != "" {
				t.Errorf("then it is told %q", again)
			}
			p.c.kill()
			p.c = p.start()
			defer p.c.hangUp()
			if again := p.told(); strings.Contains(again, "counts/act") {
				t.Errorf("and later %q", again)
			}
			if now := p.counted(); now["a"] != before["a"] || now["b"] != before["b"] {
				t.Errorf("the calls came %v, and then %v", before, now)
			}
		})
	}
}

// noted tells whether a word is in what is kept of runs' calls.
func (p *waitingRun) noted(word string) bool {
	for _, path := range p.kept() {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), `"`+word+`":`) {
			return true
		}
	}
	return false
}

// TestARunThatGoesOnElsewhereIsNoneThatWasKilled has another process look at the state
// folder while a run goes on, and a session reset, and destroyed, whose run was killed.
func TestARunThatGoesOnElsewhereIsNoneThatWasKilled(t *testing.T) {
	t.Parallel()
	p := newTools(t, "python", "")
	p.hold("b")
	p.began = p.run(waitingPrograms[p.language], 60)
	p.until("both calls were sent", func() bool { return len(p.lines(callsFile)) == 2 })
	other := p.start()
	a, err := other.call("execute_code", map[string]any{"session_id": p.session, "code": "1"})
	switch {
	case err != nil:
		t.Errorf("another process uses the session: %v", err)
	case a.failed() == nil:
		t.Errorf("another process uses the session: no fault, want one: %+v", a)
	case a.failed().Code != "conflict":
		t.Errorf(`another process uses the session: the fault is %+v, want the code "conflict"`, *a.failed())
	}
	out, err := p.do("session", "ls", "--json")
	var all struct{ Sessions []listed }
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	switch {
	case err != nil:
		t.Errorf("the list is %s: %v", out, err)
	case len(all.Sessions) == 0:
		t.Errorf("all.Sessions is empty, want some: %s", out)
	}
	if len(p.kept()) == 0 {
		t.Error("another process let go of what a run called that goes on")
	}
	other.hangUp()
	p.c.kill()
	p.c = p.start()
	p.c.must(t, "reset_workspace", map[string]any{"session_id": p.session})
	if notice := p.told(); !strings.Contains(notice, "counts/act") {
		t.Errorf("after a reset it is told %q", notice)
	}
	p.began = p.run(waitingPrograms[p.language], 60)
	p.until("it goes on once more", func() bool { return len(p.lines(callsFile)) == 4 })
	p.c.kill()
	p.c = p.start()
	defer p.c.hangUp()
	p.c.must(t, "destroy_session", map[string]any{"session_id": p.session})
	if left := p.kept(); len(left) != 0 {
		t.Errorf("of a session that was destroyed there is left %q", left)
	}
	p.c.must(t, "create_session", map[string]any{"session_id": p.session})
	if notice := p.told(); notice != "" {
		t.Errorf("another session of the name is told %q", notice)
	}
}

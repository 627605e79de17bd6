package secrets

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// TestASkillsScriptHasWhatItDeclares runs a script that declares one secret and one host,
// where sessions may have more.
func TestASkillsScriptHasWhatItDeclares(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			paddocktest.Require(t, isolation)
			s, other := open(t), open(t)
			h := build(t, s, other)
			dir := filepath.Join(h.dir, "asks")
			if err := os.MkdirAll(filepath.Join(dir, "scripts"), 0o700); err != nil {
				t.Fatal(err)
			}
			code := strings.ReplaceAll(`
v = os.environ
print([k for k in sorted(v) if k.endswith("_KEY")], ask(U + "/", Authorization="Bearer " + v["HEADER_KEY"])[0])
try:
    print(ask("{O}/")[0])
except Exception as e:
    print("host" if "not among" in str(e) else e)
`, "{O}", other.URL)
			for name, text := range map[string]string{
				"SKILL.md": "---\nname: asks\ndescription: Asks\nmetadata:\n  paddock.hosts: " + s.address + " evil.test\n  paddock.secrets: HEADER_KEY MISSING_KEY\n---\n# Asks\n", "scripts/ask.py": withU("python", s, python+code),
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h.paddock(t, "skill", "install", dir)
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), append(append([]string{"skill", "run"}, flags(isolation, s, other)...), "asks", "ask.py")...)
			cmd.Env, cmd.Stderr = h.env, &stderr
			out, err := cmd.Output()
			if got := strings.TrimSpace(string(out)); err != nil {
				t.Errorf("got error %v, want none: %s", err, &stderr)
			} else if want := "['HEADER_KEY'] 200\nhost"; got != want {
				t.Errorf("it prints %q, want %q: %s", got, want, &stderr)
			}
			expect(t, "the script", s, 1, 0, 0, 0)
			for _, want := range []string{"the skill declares the host evil.test, which programs may not reach here", "the skill declares the secret MISSING_KEY: MISSING_KEY is not among"} {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("it is not said that %s: %s", want, &stderr)
				}
			}
		})
	}
}

// TestANamedSandboxHasWhatIsAllowed has programs of a sandbox that was started by name,
// and booted ahead, use a secret.
func TestANamedSandboxHasWhatIsAllowed(t *testing.T) {
	paddocktest.Require(t, "linux")
	s := open(t)
	h := build(t, s)
	h.env = append(h.env, "PADDOCK_TOOLS_ENABLED=sandbox")
	m := h.start(t, flags("linux", s)...)
	box := map[string]any{"sandbox": "one", "namespace": "default"}
	if failed := h.call(t, m, "sandbox_start", box, nil); failed != "" {
		t.Fatal(failed)
	}
	for range 2 {
		box["command"], box["args"] = "sh", []string{"-c", bash[strings.Index(bash, "curl"):strings.Index(bash, "curl -sS -i -G")]}
		box["args"].([]string)[1] = "U=" + s.URL + "\n" + box["args"].([]string)[1]
		if failed := h.call(t, m, "sandbox_run_command", box, nil); failed != "" {
			t.Fatal(failed)
		}
		expect(t, "a named sandbox", s, 1, 1, 0, 0)
		for _, tool := range []string{"sandbox_stop", "sandbox_start"} {
			if failed := h.call(t, m, tool, map[string]any{"sandbox": "one", "namespace": "default"}, nil); failed != "" {
				t.Fatal(failed)
			}
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	f := finder{forms: forms(core)}
	if f.folder(t, h.dir, time.Time{}); len(f.found) > 0 {
		t.Errorf("a value is in %q", f.found)
	}
}

// Package packaging tries what paddock is delivered with: the service of
// systemd and the image's file.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTheServiceGetsLittle has systemd read the unit and rate it, where it is
// there.
func TestTheServiceGetsLittle(t *testing.T) {
	unit := text(t, "paddock.service")
	_, err := exec.LookPath("systemd-analyze")
	sandboxtest.Require(t, "systemd", err == nil, "there is no systemd-analyze on this machine")
	// verify wants the program to be there.
	file := filepath.Join(t.TempDir(), "paddock.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/paddock", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", file},
		{"security", "--offline=true", "--no-pager", "--threshold=15", file}, // 1.5 of 10; 9.6 is a service without any of it
	} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// TestTheServiceLetsPaddockWork: what it takes away must not be what the
// workers need.
func TestTheServiceLetsPaddockWork(t *testing.T) {
	settings := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(text(t, "paddock.service"), -1) {
		settings[m[1]] = append(settings[m[1]], m[2])
	}
	for name, want := range map[string]string{
		"User": "paddock", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "",
		"StateDirectory": "paddock", "CacheDirectory": "paddock",
		"KillMode": "mixed", // a worker that gets the SIGTERM too is gone before the server has drained
	} {
		if got := settings[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if calls := strings.Join(settings["SystemCallFilter"], " "); !strings.Contains(calls, "landlock_restrict_self") || !strings.Contains(calls, " seccomp") {
		t.Errorf("the workers cannot build their walls with %q", calls)
	}
	for _, never := range []string{"MemoryDenyWriteExecute", "NoExecPaths"} {
		if got := settings[never]; got != nil {
			t.Errorf("%s is %q: the engines could not run", never, got)
		}
	}
}

// TestAProgramRunsInTheImage runs the binary in a root that is like the
// image's, read-only and without any privilege.
func TestAProgramRunsInTheImage(t *testing.T) {
	_, err := exec.LookPath("unshare")
	sandboxtest.Require(t, "container", runtime.GOOS == "linux" && os.Geteuid() == 0 && err == nil, "it takes root on Linux to make a container's root")
	t.Setenv("CGO_ENABLED", "0") // there is no C library in the image
	binary := sandboxtest.Binary(t)
	for _, c := range []struct{ about, code, want string }{
		{"a program", "print(1)", "1\n"},
		{"its files", "open('/workspace/a', 'w').write('x'); import os; print(os.listdir('/workspace'), os.path.exists('/state'))", "['a'] False\n"},
	} {
		out, err := exec.CommandContext(t.Context(), "bash", "contained.sh", binary, "run", "-c", c.code).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s prints %q (%v), want %q", c.about, out, err, c.want)
		}
	}
}

// TestTheImageRunsAsNobodyInParticular: the lines that the promises of
// docs/deploy.md rest on.
func TestTheImageRunsAsNobodyInParticular(t *testing.T) {
	lines := strings.Split(text(t, "Containerfile"), "\n")
	last := map[string]string{} // by instruction
	for _, line := range lines {
		if instruction, rest, ok := strings.Cut(line, " "); ok {
			last[instruction] = rest
		}
	}
	for instruction, want := range map[string]string{
		"FROM": "scratch", "USER": "65532:65532", "VOLUME": `["/state", "/cache"]`,
		"ENV": "PADDOCK_STATE_DIR=/state PADDOCK_CACHE_DIR=/cache", "ENTRYPOINT": `["/paddock"]`,
	} {
		if last[instruction] != want {
			t.Errorf("%s is %q, want %q", instruction, last[instruction], want)
		}
	}
	if !strings.Contains(text(t, "contained.sh"), "--userspec="+last["USER"]) {
		t.Error("contained.sh runs as somebody else")
	}
}

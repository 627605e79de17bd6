package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// debian is a root folder in which dpkg installs.
type debian struct{ program, root string }

func openDebian(t *testing.T) debian {
	t.Helper()
	d := debian{where(t, "dpkg", "dpkg"), t.TempDir()}
	for _, dir := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(d.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// dpkg calls dpkg, whose scripts find the root folder's name in $DPKG_ROOT: it has no shell
// that they could run with.
func (d debian) dpkg(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"--root=" + d.root, "--log=" + filepath.Join(d.root, "log"), "--force-script-chrootless", "--force-not-root"}, args...)
	out, err := exec.CommandContext(t.Context(), d.program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (d debian) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

func (d debian) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(d.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fromDeb installs the Debian package.
func fromDeb(t *testing.T, dir string) tool {
	t.Helper()
	d := openDebian(t)
	d.dpkg(t, "--install", one(t, dir, "paddock_*_"+runtime.GOARCH+".deb"))
	return tool{[]string{d.path("usr/bin/paddock")}, bare(t, nil)}
}

func TestTheDebianPackageIsInstalledAndRemoved(t *testing.T) {
	d, file := openDebian(t), one(t, release(t), "paddock_*_"+runtime.GOARCH+".deb")
	d.dpkg(t, "--install", file)
	d.dpkg(t, "--install", file) // as an upgrade does
	if changed := d.dpkg(t, "--verify", "paddock"); changed != "" {
		t.Errorf("what is installed differs from the package:\n%s", changed)
	}
	if status := d.dpkg(t, "--status", "paddock"); !strings.Contains(status, "Status: install ok installed\n") {
		t.Errorf("dpkg says\n%s", status)
	}
	for line := range strings.Lines(d.read(t, "usr/lib/systemd/system/paddock.service")) {
		start, ok := strings.CutPrefix(line, "ExecStart")
		if !ok {
			continue
		}
		_, command, _ := strings.Cut(strings.TrimSpace(start), "=")
		program, _, _ := strings.Cut(command, " ")
		if _, err := os.Stat(d.path(program)); err != nil {
			t.Errorf("the service starts a program that the package does not have: %v", err)
		}
	}
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		if users := d.read(t, "etc/passwd"); !strings.Contains(users, "paddock:") {
			t.Errorf("the service's user is not among\n%s", users)
		}
	}
	wantHelp(t, d)

	for _, kept := range []string{"var/lib/paddock", "var/cache/paddock"} {
		if err := os.MkdirAll(d.path(kept), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if said := d.dpkg(t, "--purge", "paddock"); !strings.Contains(said, "are kept in /var/lib/paddock") {
		t.Errorf("it does not say what is kept:\n%s", said)
	}
	for name, stays := range map[string]bool{"usr/bin/paddock": false, "var/cache/paddock": false, "var/lib/paddock": true} {
		if _, err := os.Stat(d.path(name)); (err == nil) != stays {
			t.Errorf("after it is removed, %s is there: %v, want %v", name, err == nil, stays)
		}
	}
}

// wantHelp has bash complete a command, and man show a page.
func wantHelp(t *testing.T, d debian) {
	t.Helper()
	bash := where(t, "bash", "bash")
	script := fmt.Sprintf(`PATH=%q:$PATH
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; } # of bash-completion
compopt() { :; } # which works for a person alone
. %q
COMP_WORDS=(paddock session ren) COMP_CWORD=2 COMP_LINE="paddock session ren" COMP_POINT=19 COMP_TYPE=9
__start_paddock
echo "${COMPREPLY[0]}"
`, d.path("usr/bin"), d.path("usr/share/bash-completion/completions/paddock"))
	cmd := exec.CommandContext(t.Context(), bash, "-c", script)
	cmd.Env = append(bare(t, nil), "PATH="+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "rename" {
		t.Errorf("bash completes %q (%v), want rename", out, err)
	}
	for _, file := range []string{"zsh/vendor-completions/_paddock", "fish/vendor_completions.d/paddock.fish"} {
		if !strings.Contains(d.read(t, "usr/share/"+file), "__complete") {
			t.Errorf("%s does not ask paddock for words", file)
		}
	}
	man := where(t, "man", "man")
	cmd = exec.CommandContext(t.Context(), man, "--manpath="+d.path("usr/share/man"), "--warnings", "paddock-session-rename")
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "paddock session rename") || strings.Contains(string(out), "warning") {
		t.Errorf("man shows %v\n%s", err, out)
	}
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestABoxRunsAProgramOfTheHost(t *testing.T) {
	b := bootBox(t, newLauncher(t), newPlan(t, "/bin/echo", "hello from inside"))
	if got := output(t, b); got != "hello from inside" {
		t.Errorf("it printed %q; %s", got, b.close())
	}
}

func TestAProgramInABoxIsNobodyInParticular(t *testing.T) {
	t.Setenv("PADDOCK_TEST_SECRET", "nobody inside may know this")
	b := bootBox(t, newLauncher(t), newPlan(t, "/bin/sh", "-c", "id -u; id -g; hostname; grep -h ^Cap /proc/self/status; env | sort; cat /proc/1/environ"))
	got := output(t, b)
	for _, want := range strings.Split("1000\n1000\npaddock\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nPATH=", "\n") {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "SECRET") {
		t.Errorf("it has paddock's environment: %q", got)
	}
}

// A box with the host's userland sees programs and libraries, and nothing that
// tells about the host's users or what runs on it.
func TestABoxSeesNothingOfTheHostsSecrets(t *testing.T) {
	b := bootBox(t, newLauncher(t), newPlan(t, "/bin/sh", "-c", "ls -A /root /home /var /run /tmp /srv /opt /mnt; cat /etc/shadow; ls /etc/ssl/private; cat /etc/passwd; cat /proc/1/environ; cat /proc/mounts; ls /proc | grep -c '^[0-9]'"))
	got := output(t, b)
	for _, bad := range []string{"/tmp/go-build", os.Getenv("HOME"), t.TempDir(), "root:*", "root:!"} {
		if bad != "" && bad != "/root" && strings.Contains(got, bad) {
			t.Errorf("it sees %q: %s", bad, got)
		}
	}
	if !strings.Contains(got, "sandbox:x:1000") {
		t.Errorf("its users are not ours: %s", got)
	}
}

func TestAProgramInABoxInheritsNothing(t *testing.T) {
	b := bootBox(t, newLauncher(t), newPlan(t, "/bin/ls", "/proc/self/fd"))
	// Those of the command itself, and of the folder that it lists.
	if got := strings.Join(strings.Fields(output(t, b)), " "); got != "0 1 2 3 4" && got != "0 1 2 3" {
		t.Errorf("it has %s", got)
	}
}

func TestSharedMemoryIsForEverybody(t *testing.T) {
	p := newPlan(t, "/bin/sh", "-c", "echo shared > /dev/shm/f; cat /dev/shm/f; head -c 1000000000 /dev/zero > /dev/shm/g")
	p.memory = 64 << 20
	if got := output(t, bootBox(t, newLauncher(t), p)); !strings.HasPrefix(got, "shared\n") || !strings.Contains(got, "No space left") {
		t.Errorf("it printed %q", got)
	}
}

func TestFoldersOfTheHostAreMounted(t *testing.T) {
	p := newPlan(t, "/bin/sh", "-c", "cat /mine/in /app/in; echo made > /mine/out; echo no > /look/out; echo no > /usr/out; cat /look/in; echo here > /tmp/x && cat /tmp/x")
	work, look := folderFor(t, "work"), folderFor(t, "look")
	for _, dir := range []string{work, look} {
		if err := os.WriteFile(filepath.Join(dir, "in"), []byte("in "+filepath.Base(dir)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.folders = []folder{{guest: "/mine", host: work}, {guest: "/app", host: work}, {guest: "/look", host: look, readOnly: true}}
	p.overlayBytes = 1 << 20
	b := bootBox(t, newLauncher(t), p)
	got := output(t, b)
	for _, want := range []string{"in work\nin work\n", "/look/out", "Read-only", "in look", "here"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(work, "out")); err != nil || string(text) != "made\n" {
		t.Errorf("the file it made has %q, %v", text, err)
	}
	for _, p := range []string{filepath.Join(look, "out"), "/usr/out"} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("it made %s", p)
		}
	}
}

// folderFor makes a folder that a box may write to, in one that only root and
// paddock may enter.
func folderFor(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestABoxThatCannotBootSaysWhy(t *testing.T) {
	l := newLauncher(t)
	p := newPlan(t)
	p.folders = []folder{{guest: "/mine", host: "/nowhere/at/all"}}
	if _, err := l.boot(t.Context(), p, nil); err == nil || !strings.Contains(err.Error(), "/nowhere/at/all") {
		t.Error(err)
	}
	p = newPlan(t)
	l.platform = "cobol"
	if _, err := l.boot(t.Context(), p, nil); err == nil || !strings.Contains(fmt.Sprint(err), "cobol") {
		t.Error(err)
	}
}

// A sentry can be ended after paddock connected to it and before it accepted that. Then
// nothing is left that keeps the connection open, or the boot never ends.
func TestABootEndsWhenItsSentryDoesNotAccept(t *testing.T) {
	l := newLauncher(t)
	bootBox(t, l, newPlan(t, "/bin/true")) // or there are no boxes here
	real := executable
	executable = ownProgram(t, deafProgram)
	defer func() { executable = real }()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("nobody wants it any more"))
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := l.boot(ctx, newPlan(t), nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "nobody wants it any more") {
			t.Errorf("the boot ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the boot does not end")
	}
}

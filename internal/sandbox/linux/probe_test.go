//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

func TestTheProbeTellsWhatWorks(t *testing.T) {
	b := newBackend(t)
	p := b.Probe(t.Context())
	if !p.Available || p.Engine != Engine || len(p.Runtimes) == 0 {
		t.Errorf("%+v", p)
	}
	for _, name := range []string{"gvisor", "namespaces", "seccomp", "user", "memory cgroup", "pids cgroup", "cpu cgroup"} {
		if w := wall(p, name); w.Detail == "" {
			t.Errorf("nothing is said about %q", name)
		}
	}
	p.Runtimes[0].Name = "changed"
	if b.Probe(t.Context()).Runtimes[0].Name == "changed" {
		t.Error("the caller's copy is everybody's")
	}
}

func wall(p sandbox.Probe, name string) sandbox.Protection {
	for _, w := range p.Protections {
		if w.Name == name {
			return w
		}
	}
	return sandbox.Protection{}
}

func TestAProbeThatFailsHasAReasonAndAHint(t *testing.T) {
	b := openBackend(t, Config{})
	b.Close()
	b.probed = nil
	if p := b.Probe(t.Context()); p.Available || p.Reason == "" || p.Hint == "" {
		t.Errorf("%+v", p)
	}
}

func TestAnImageThatIsNotThereIsToldAsSuch(t *testing.T) {
	newBackend(t) // or the test is skipped
	b, err := New(Config{Dir: t.TempDir(), Log: logger(t), Image: "missing", Images: func(context.Context, string) (Image, error) {
		return Image{}, fault.New(fault.NotFound, "there is no image").WithHint("pull it")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if p := b.Probe(t.Context()); p.Available || p.Reason != "there is no image" || p.Hint != "pull it" {
		t.Errorf("%+v", p)
	}
}

func TestWhatDidNotWorkIsTriedAgainByTheSameProcess(t *testing.T) {
	b := newBackend(t)
	b.probed = &findings{At: time.Now().Add(-time.Minute), Probe: sandbox.Probe{Reason: "no"}}
	if p := b.Probe(t.Context()); !p.Available {
		t.Errorf("%+v", p)
	}
}

func TestAProbeThatWasGivenUpIsMadeAgain(t *testing.T) {
	b := newBackend(t)
	b.probed = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Probe(ctx)
	if p := b.Probe(t.Context()); !p.Available {
		t.Errorf("%+v", p)
	}
}

func TestEachObstacleHasItsHint(t *testing.T) {
	refused := fmt.Errorf("starting the sentry: %w", unix.EPERM)
	for name, c := range map[string]struct {
		err   error
		root  bool
		files map[string]string
		want  string
	}{
		"namespaces are off":             {refused, false, map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"},
		"there may be none":              {fmt.Errorf("x: %w", unix.ENOSPC), true, map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, "max_user_namespaces="},
		"there are too many":             {fmt.Errorf("x: %w", unix.ENOSPC), true, map[string]string{"/proc/sys/user/max_user_namespaces": "9"}, "raise"},
		"AppArmor":                       {refused, false, map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor"},
		"AppArmor does not bother root":  {refused, true, map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "container"},
		"nothing may be traced":          {refused, false, map[string]string{"/proc/sys/kernel/yama/ptrace_scope": "3"}, "ptrace_scope"},
		"a container's filter":           {refused, true, nil, "seccomp"},
		"what the gofer says":            {errors.New("mounting an empty root: permission denied"), false, nil, "seccomp"},
		"a filter that ends the sentry":  {fmt.Errorf("not ready: %w", io.EOF), true, nil, "ptrace"},
		"no memory":                      {fmt.Errorf("x: %w", unix.ENOMEM), true, nil, "memory"},
		"no time":                        {fmt.Errorf("x: %w", context.DeadlineExceeded), true, nil, "overloaded"},
		"an old kernel":                  {errors.New("making root: the kernel is older than 5.12"), true, nil, "newer"},
		"something that nobody knows of": {errors.New("boo"), true, nil, "wasm"},
	} {
		t.Run(name, func(t *testing.T) {
			got := hintFor(c.err, c.root, func(path string) string { return c.files[path] })
			if !strings.Contains(got, c.want) {
				t.Errorf("it is %q", got)
			}
		})
	}
}

// refusedRole is the name (argv[0]) of the test binary in a user namespace that
// allows no further ones: it prints what the probe finds.
const refusedRole = "paddock-test-refused"

func refusedMain(args []string) int {
	err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	if err == nil {
		var b *Backend
		if b, err = New(Config{Dir: args[0]}); err == nil {
			_ = json.NewEncoder(os.Stdout).Encode(b.Probe(context.Background()))
			err = b.Close()
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestAHostWithoutUserNamespacesIsTold(t *testing.T) {
	newBackend(t) // or the test is skipped
	cmd := exec.CommandContext(t.Context(), executable)
	cmd.Args = []string{refusedRole, t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	var p sandbox.Probe
	if err != nil || json.Unmarshal(out, &p) != nil {
		t.Fatal(err, string(out))
	}
	if p.Available || p.Reason == "" || !strings.Contains(p.Hint, "user.max_user_namespaces") {
		t.Errorf("%+v", p)
	}
}

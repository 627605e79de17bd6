//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

// What follows is what a program would have that had broken out of gVisor: the
// sentry's and the gofer's own rights on the host.

// parts gives a box in which something runs, and its processes by their role; those
// in which its programs run are "program".
func parts(t *testing.T) (b *box, all map[string][]int) {
	t.Helper()
	backend := newBackend(t)
	secret, err := os.CreateTemp(t.TempDir(), "lives")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { secret.Close() })
	backend.launcher.inherit = secret
	t.Setenv("PADDOCK_TEST_SECRET", "marker")
	in := shell(t, backend, sandbox.Spec{Mounts: []sandbox.Mount{
		{Guest: "/mine", Host: folderFor(t, "work"), DiskBytes: 1 << 20}, {Guest: "/look", Host: folderFor(t, "look"), ReadOnly: true},
	}})
	runs(t, in, "sleep 1000 > /dev/null 2>&1 & ls /mine /look /usr/lib/*/ > /dev/null")
	b = in.machine.box
	all = map[string][]int{"sentry": {b.sentry.cmd.Process.Pid}, "gofer": {b.gofer.cmd.Process.Pid}}
	for _, p := range family(b.sentry.cmd.Process.Pid) {
		if p.pid != b.sentry.cmd.Process.Pid && !p.ended {
			all["program"] = append(all["program"], p.pid)
		}
	}
	if len(all["program"]) == 0 {
		t.Fatal("there is no process with a program of the box")
	}
	return b, all
}

func TestTheProcessesOfABoxHaveNoRights(t *testing.T) {
	b, all := parts(t)
	user := "65534"
	if os.Geteuid() != 0 {
		user = fmt.Sprint(os.Geteuid())
	}
	want := map[string]string{
		"Uid": strings.Repeat(" "+user, 4), "CapInh": " 0000000000000000", "CapPrm": " 0000000000000000", "CapEff": " 0000000000000000",
		"CapAmb": " 0000000000000000", "NoNewPrivs": " 1", "Seccomp": " 2",
	}
	for role, pids := range all {
		for _, pid := range pids {
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			for _, task := range tasks {
				status := map[string]string{}
				for line := range strings.Lines(readText(task, "status")) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
					status[name] = " " + strings.Join(strings.Fields(value), " ")
				}
				for name, value := range want {
					if got := status[name]; got != value && len(status) > 0 { // or it has ended
						t.Errorf("the %s, %s: %s is%s", role, task, name, got)
					}
				}
			}
			for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
				theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
				ours, _ := os.Readlink("/proc/self/ns/" + kind)
				if err != nil || theirs == ours {
					t.Errorf("the %s has the host's namespace %s, %v", role, kind, err)
				}
			}
			dir := fmt.Sprintf("/proc/%d", pid)
			if env, err := os.ReadFile(dir + "/environ"); err != nil || len(strings.Trim(string(env), "\x00")) > 0 {
				t.Errorf("the %s has the environment %q, %v", role, env, err)
			}
			if got := strings.TrimSpace(readText(dir, "oom_score_adj")); got != "500" {
				t.Errorf("the %s is ended at %s where there is no memory", role, got)
			}
			if limits := readText(dir, "limits"); !regexp.MustCompile(`Max core file size +1 +1 `).MatchString(limits) {
				t.Errorf("the %s may dump its core: %s", role, limits)
			}
		}
	}
	for role, with := range map[string]int{"sentry": b.gofer.cmd.Process.Pid, "gofer": b.sentry.cmd.Process.Pid} {
		one, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", all[role][0]))
		other, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", with))
		if one == other {
			t.Errorf("the %s shares its user namespace", role)
		}
	}
}

// A path of the host leads nowhere for them.
func TestTheProcessesOfABoxSeeNoFilesOfTheHost(t *testing.T) {
	_, all := parts(t)
	for role, want := range map[string]string{"sentry": "proc", "gofer": "agent fds folder0 folder1 root", "program": "proc"} {
		dir := fmt.Sprintf("/proc/%d/root/", all[role][0])
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Errorf("the %s: %v", role, err)
			continue
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the root of the %s has %s", role, got)
		}
		for line := range strings.Lines(readText(filepath.Dir(strings.TrimSuffix(dir, "/")), "mountinfo")) {
			f := strings.Fields(line)
			if f[3] == "/" && !strings.Contains(line, " - tmpfs paddock ") && !strings.Contains(line, " - proc ") && !strings.HasPrefix(f[4], "/root/") && !strings.HasPrefix(f[4], "/folder") {
				t.Errorf("the %s has a whole file system: %s", role, line)
			}
			if options := "," + f[5] + ","; !strings.Contains(options, ",nosuid,") || !strings.Contains(options, ",nodev,") || !strings.Contains(options, ",ro,") && f[4] != "/folder0" {
				t.Errorf("the %s has a mount that lets too much: %s", role, line)
			}
		}
	}
}

// reasons are why a sentry or a gofer has something open.
var reasons = []struct {
	role, target string
	why          string
}{
	{"", `^/dev/null$`, "standard streams, of it and of the box's first program"},
	{"", `^pipe:`, "its standard error to the server, and gVisor's own"},
	{"", `^anon_inode:\[(eventpoll|eventfd)\]$`, "the Go runtime's, and between sentry and gofer"},
	{"", `^socket:`, "the gofer and the sentry; the sentry and the server: control, and the first program's connection"},
	{"", `^/memfd:flipcall_packet_windows`, "the gofer and the sentry"},
	{"", `/lives[0-9]*$`, "Config.Inherit"},
	{"", `/cpu(\.cfs_(quota|period)_us|\.max)$`, "the Go runtime asks how many processors there are; for reading"},
	{"", `^/(root|folder[01])(/|$)`, "files of the box"},
	{"", `^/agent(/paddock-agent)?$`, "the box's first program, which is this one"},
	{"gofer", `^/$`, "gVisor's: the gofer's own root, which is empty but for the folders"},
	{"gofer", `^(/proc/\d+)?/fd$`, "its own list of open files"},
	{"sentry", `^/memfd:(systrap-memory|runsc-memory|memory-usage)`, "the memory of the box's programs"},
	{"sentry", `^anon_inode:(seccomp notify|\[pidfd\])$`, "the processes of the box's programs"},
	{"sentry", `/overlay-\d+ \(deleted\)$`, "what is written upon the image"},
	{"sentry", `^/proc(/own)?(/|$)`, "its own"},
}

func TestTheProcessesOfABoxHaveNothingElseOpen(t *testing.T) {
	b, all := parts(t)
	for _, role := range []string{"sentry", "gofer"} {
		dir := fmt.Sprintf("/proc/%d/fd", all[role][0])
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) < 5 {
			t.Fatal(entries, err)
		}
		for _, e := range entries {
			target, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			why := ""
			for _, r := range reasons {
				if (r.role == "" || r.role == role) && regexp.MustCompile(r.target).MatchString(target) {
					why = r.why
				}
			}
			if why == "" {
				t.Errorf("the %s has %s: %s", role, e.Name(), target)
			}
			flags := readText(filepath.Dir(dir), "fdinfo/"+e.Name())
			writes := !regexp.MustCompile(`flags:\t0*[0-7]*0\n`).MatchString(flags) && regexp.MustCompile(`flags:\t[0-7]*[12]\n`).MatchString(flags)
			if writes && (strings.HasPrefix(target, "/root") || strings.HasPrefix(target, "/agent") || strings.HasPrefix(target, "/folder1") || strings.Contains(target, "/cpu.")) {
				t.Errorf("the %s may write to %s", role, target)
			}
		}
	}
	_ = b
}

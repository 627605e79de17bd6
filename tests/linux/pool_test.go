//go:build linux

package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// own is a paddock with a state folder of its own, as some user of this machine.
type own struct {
	*client
	cmd   *exec.Cmd
	state string
}

// startOwn starts one whose sessions run this machine's own programs.
func startOwn(t *testing.T, state string, uid uint32) *own {
	t.Helper()
	cmd := paddock(t, "mcp", "--isolation", "linux", "--state-dir", state)
	cmd.Env = append(cmd.Env, "PADDOCK_SANDBOX_IMAGE=host", "PADDOCK_CACHE_DIR="+filepath.Join(state, "cache"), "HOME="+state, "TMPDIR="+state)
	cmd.SysProcAttr, cmd.Dir, cmd.Stderr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, state, os.Stderr
	made := sdk.NewClient(&sdk.Implementation{Name: "paddock-tests", Version: "1"}, nil)
	session, err := made.Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return &own{&client{ClientSession: session}, cmd, state}
}

// ahead are the folders that machines were booted upon ahead, by what they are on
// the disk.
func (o *own) ahead(t *testing.T) map[uint64]string {
	t.Helper()
	all := map[uint64]string{}
	paths, err := filepath.Glob(filepath.Join(o.state, "pool", "*", "*", "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			all[info.Sys().(*syscall.Stat_t).Ino] = path
		}
	}
	return all
}

// create makes sessions until one has a machine that was booted ahead, and gives its
// id and its folder.
func (o *own) create(t *testing.T) (id, workspace string) {
	t.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ready := o.ahead(t)
		if len(ready) == 0 {
			continue
		}
		var made struct {
			ID string `json:"session_id"`
		}
		o.call(t, "create_session", map[string]any{"language": "python"}, &made)
		workspace = filepath.Join(o.state, "owners", "local", made.ID, "workspace")
		info, err := os.Stat(workspace)
		if err != nil {
			t.Fatal(err)
		}
		if _, taken := ready[info.Sys().(*syscall.Stat_t).Ino]; taken {
			return made.ID, workspace
		}
		o.call(t, "destroy_session", map[string]any{"session_id": made.ID}, nil) // it was not ready yet
	}
	t.Fatal("no session gets a machine that was booted ahead")
	return "", ""
}

// family are the processes that one has started, and those that these have.
func family(pid int) (all []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if err != nil || len(f) < 2 || f[0] == "Z" {
			continue
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(f[1])
		children[parent] = append(children[parent], child)
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		all, next = append(all, children[next[0]]...), append(next, children[next[0]]...)
	}
	return all
}

// living are those of the processes that have not ended.
func living(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(text), ") Z ")
	})
}

// eventually waits until nothing is wrong any more.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	why := wrong()
	for deadline := time.Now().Add(timeout); why != "" && time.Now().Before(deadline); why = wrong() {
		time.Sleep(5 * time.Millisecond)
	}
	if why != "" {
		t.Error(why)
	}
}

// lookAround tells what a program finds when it is the first in its machine: files,
// other programs, variables.
const lookAround = `import os, glob
print(sorted(os.listdir('/workspace') + os.listdir('/tmp')))
print(sorted({open(p).read().split('\0')[0].rsplit('/')[-1] for p in glob.glob('/proc/[0-9]*/cmdline')} - {''}))
print(sorted(k for k in globals() if not k.startswith('__') and k not in ('os', 'glob')))
print(sorted(os.environ))`

// leaveTraces does what the next owner of a machine must not find.
const leaveTraces = `import os, subprocess
secret = 'mine'
os.environ['SECRET'] = secret
for path in '/workspace/mine', '/tmp/mine', '/dev/shm/mine':
    open(path, 'w').write(secret)
subprocess.Popen(['sleep', '1000'])`

func TestSessionsGetMachinesThatWereBootedAhead(t *testing.T) {
	withPackages(t) // and root, to be somebody else
	prepare(t)
	for name, uid := range map[string]uint32{"as root": 0, "as somebody else": 12345} {
		t.Run(name, func(t *testing.T) {
			state, err := os.MkdirTemp(shared.dir, "own-") // which everybody may enter
			if err == nil {
				err = os.Chown(state, int(uid), int(uid))
			}
			if err != nil {
				t.Fatal(err)
			}
			o := startOwn(t, state, uid)
			id, workspace := o.create(t)
			first := o.run(t, "python", lookAround, "session_id", id).Stdout
			if !strings.HasPrefix(first, "[]\n['paddock") || strings.Contains(first, "SECRET") {
				t.Errorf("a program finds %s", first)
			}
			o.run(t, "python", leaveTraces, "session_id", id)
			if text, err := os.ReadFile(filepath.Join(workspace, "mine")); string(text) != "mine" {
				t.Errorf("its file is %q, %v", text, err)
			}
			second, _ := o.create(t)
			if found := o.run(t, "python", lookAround, "session_id", second).Stdout; found != first {
				t.Errorf("the next session finds %s", found)
			}
			o.call(t, "destroy_session", map[string]any{"session_id": id}, nil)
			third, _ := o.create(t)
			if found := o.run(t, "python", lookAround, "session_id", third).Stdout; found != first {
				t.Errorf("a session after it finds %s", found)
			}
			killAndSweep(t, o, uid)
		})
	}
}

// killAndSweep kills a paddock that has machines ready, and has the next one find
// what is left.
func killAndSweep(t *testing.T, o *own, uid uint32) {
	t.Helper()
	eventually(t, func() string {
		if len(o.ahead(t)) == 0 {
			return "no machine is booted ahead"
		}
		return ""
	})
	had := family(o.cmd.Process.Pid)
	if len(had) < 4 {
		t.Errorf("it has the processes %v alone", had)
	}
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.Close()
	gone := func() string {
		if left := living(had); len(left) > 0 {
			return fmt.Sprintf("the processes %v live on", left)
		}
		return ""
	}
	eventually(t, gone)
	left := o.ahead(t)
	next := startOwn(t, o.state, uid)
	for _, path := range left {
		if _, err := os.Stat(path); err == nil {
			t.Error("what was left of the pool is there")
		}
	}
	id, _ := next.create(t)
	next.run(t, "python", "x = 41", "session_id", id)
	had = family(next.cmd.Process.Pid)
	next.Close()
	eventually(t, gone)
	last := startOwn(t, o.state, uid) // what was kept of the machine goes on where the session is
	if r := last.run(t, "python", "x + 1", "session_id", id); r.Result != "42" || r.Notice != "" {
		t.Errorf("it gave %q: %s", r.Result, r.Notice)
	}
	had = family(last.cmd.Process.Pid)
	last.Close()
	eventually(t, gone)
	for _, dir := range []string{"pool", "boxes"} {
		if entries, err := os.ReadDir(filepath.Join(o.state, dir)); err != nil || len(entries) > 0 {
			t.Errorf("in %s there is %v, %v", dir, entries, err)
		}
	}
}

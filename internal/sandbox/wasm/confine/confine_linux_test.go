package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

const childRole = "confined-child"

// TestMain lets the test binary be its own confined child: its arguments are
// a writable and a readable folder.
func TestMain(m *testing.M) {
	if os.Args[0] == childRole {
		os.Exit(child(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

// outcome runs a try and gives what came of it in a word.
func outcome(name string, err error) {
	switch {
	case err == nil:
		fmt.Println(name, "done")
	default:
		fmt.Println(name, "refused", strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func child(writable, readable string) int {
	root, err := os.OpenRoot(writable)
	if err != nil {
		fmt.Println("opening the folder:", err)
		return 1
	}
	walls, err := Apply(Policy{Writable: []string{writable}, Readable: []string{readable}, UID: 65534, GID: 65534})
	if err != nil {
		fmt.Println("applying:", err)
		return 1
	}
	for _, w := range walls {
		fmt.Println("wall", strings.ReplaceAll(w.Name, " ", "-"), w.Active)
	}
	tryForbidden(readable)
	tryNeeded(root)
	return 0
}

func tryForbidden(readable string) {
	_, err := net.Dial("tcp", "127.0.0.1:1")
	outcome("connect", notAnAnswer(err))
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	outcome("socket", err)
	outcome("exec", exec.Command("/bin/true").Run())
	_, err = syscall.ForkExec("/bin/true", nil, nil)
	outcome("fork", err)
	outcome("kill", syscall.Kill(os.Getppid(), 0))
	_, _, e := unix.Syscall(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getppid()), 0)
	outcome("ptrace", failed(e))
	_, _, e = unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
	outcome("io_uring", failed(e))
	_, _, e = unix.Syscall(unix.SYS_USERFAULTFD, 0, 0, 0)
	outcome("userfaultfd", failed(e))
	outcome("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	outcome("setuid", syscall.Setuid(0))
	outcome("mount", unix.Mount("none", "/", "tmpfs", 0, ""))
	_, _, e = unix.Syscall(unix.SYS_TGKILL, uintptr(os.Getppid()), uintptr(os.Getppid()), 0)
	outcome("tgkill", failed(e))
	outcome("write-readable", os.WriteFile(filepath.Join(readable, "x"), nil, 0o644))
	_, err = os.ReadFile("/etc/shadow")
	outcome("shadow", err)
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
	outcome("environ", err)
}

// notAnAnswer keeps a refusal by the other side from being taken for a wall.
func notAnAnswer(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return err
}

func failed(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// spin is a module with one function that returns.
var module = []byte{0, 'a', 's', 'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 'f', 0, 0, 10, 4, 1, 2, 0, 0x0b}

func tryNeeded(root *os.Root) {
	err := errors.Join(root.Mkdir("d", 0o755), root.WriteFile("d/f", []byte("hello"), 0o644), root.Rename("d/f", "d/g"),
		root.Symlink("g", "d/l"), root.Link("d/g", "d/h"), root.Remove("d/h"))
	if err == nil {
		var f *os.File
		if f, err = root.OpenFile("d/l", os.O_RDWR, 0); err == nil {
			err = errors.Join(f.Truncate(3), f.Sync(), f.Close())
		}
	}
	outcome("files", err)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			runtime.LockOSThread()
			runtime.GC()
		})
	}
	all.Wait()
	outcome("threads", nil)
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	m, err := r.Instantiate(ctx, module)
	if err == nil {
		_, err = m.ExportedFunction("f").Call(ctx)
	}
	outcome("wazero", err)
	b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		err = unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
	}
	outcome("mprotect", err)
}

func TestAConfinedProcessCanDoItsWorkAndNothingElse(t *testing.T) {
	base := t.TempDir()
	writable, readable := filepath.Join(base, "w"), filepath.Join(base, "r")
	for _, dir := range []string{writable, readable} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(writable, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{childRole, writable, readable}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	walls := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) >= 3 && f[0] == "wall" {
			walls[f[1]] = f[2] == "true"
		} else if len(f) >= 2 {
			got[f[0]] = f[1]
		}
	}
	if !walls["seccomp"] {
		t.Skip("this kernel has no seccomp filters")
	}
	refused := []string{"connect", "socket", "exec", "fork", "kill", "ptrace", "io_uring", "userfaultfd", "unshare", "setuid", "mount", "tgkill"}
	if os.Geteuid() == 0 || walls["landlock"] {
		refused = append(refused, "write-readable", "shadow", "environ")
	}
	for _, name := range refused {
		if got[name] != "refused" {
			t.Errorf("%s is %q, want it refused", name, got[name])
		}
	}
	for _, name := range []string{"files", "threads", "wazero", "mprotect"} {
		if got[name] != "done" {
			t.Errorf("%s is %q, want it done", name, got[name])
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

func TestProbeNamesEveryWallThatApplyReports(t *testing.T) {
	names := map[string]bool{}
	for _, w := range Probe() {
		if w.Name == "" || w.Detail == "" {
			t.Errorf("the wall %+v lacks something", w)
		}
		names[w.Name] = true
	}
	for _, name := range []string{wallLimits, wallLandlock, wallUser, wallCapabilities, wallPrivileges, wallDump, wallSeccomp} {
		if !names[name] {
			t.Errorf("%s is not named", name)
		}
	}
}

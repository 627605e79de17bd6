package confine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/sandboxtest"
)

func requireRoot(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t, "root", os.Geteuid() == 0, "only root can become another user, or start without walls and be refused nothing")
}

// timeout bounds how long a child may take altogether.
const timeout = time.Minute

// newOrder makes an order with folders that everybody may change: what is refused
// there is refused by a wall and not by a file's rights.
func newOrder(t *testing.T) order {
	t.Helper()
	base := t.TempDir()
	o := order{Outside: filepath.Join(base, "outside"), Policy: Policy{
		Writable: []string{filepath.Join(base, "writable")}, Readable: []string{filepath.Join(base, "readable")},
		MaxFileSize: 1 << 20, MaxOpenFiles: 256,
	}}
	for _, dir := range []string{filepath.Dir(base), base, o.Outside, o.Policy.Writable[0], o.Policy.Readable[0]} {
		open(t, dir, os.MkdirAll(dir, 0o777))
	}
	for dir, names := range map[string][]string{o.Outside: {"secret", "victim", "loot"}, o.Policy.Readable[0]: {"file", "victim"}} {
		for _, name := range names {
			path := filepath.Join(dir, name)
			open(t, path, os.WriteFile(path, []byte("to be read"), 0o666))
		}
	}
	return o
}

// open takes err of making path and lets everybody use it.
func open(t *testing.T, path string, err error) {
	t.Helper()
	if err == nil {
		err = os.Chmod(path, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a child with attributes, which may be nil, and waits until its
// walls stand.
func start(t *testing.T, o order, attributes *syscall.SysProcAttr) *child {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "parent"), os.NewFile(uintptr(fds[1]), "child")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &child{t: t, walls: map[string]bool{}, in: json.NewDecoder(conn), out: json.NewEncoder(conn), stderr: &bytes.Buffer{}}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	// The race detector would wait for a second at the end.
	cmd.Args, cmd.Env, cmd.Dir = []string{childRole}, []string{"GORACE=atexit_sleep_ms=0"}, "/"
	cmd.Stdin, cmd.Stderr, cmd.SysProcAttr = theirs, c.stderr, attributes
	err = cmd.Start()
	theirs.Close()
	if attributes != nil && attributes.Cloneflags&unix.CLONE_NEWUSER != 0 {
		sandboxtest.Require(t, "user-namespaces", err == nil, fmt.Sprint(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.pid, c.wait = cmd.Process.Pid, cmd.Wait
	var b built
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if err := c.out.Encode(o); err != nil {
		t.Fatal(err)
	}
	if err := c.in.Decode(&b); err != nil {
		t.Fatalf("the child said nothing: %v, %v\n%s", err, cmd.Wait(), c.stderr)
	}
	c.err = b.Error
	for _, w := range b.Walls {
		c.walls[w.Name] = w.Active
	}
	return c
}

// situation is one way in which a worker is started.
type situation struct {
	name       string
	needsRoot  bool
	attributes *syscall.SysProcAttr
	become     int
	uid        int  // whom the process is in the end
	changes    bool // it becomes another user
	keeps      bool // it has to give up capabilities that no change of user takes
	namespace  bool // it has its own
}

func situations() []situation {
	uid, gid := os.Geteuid(), os.Getegid()
	return []situation{
		{name: "root who becomes somebody else", needsRoot: true, become: nobody, uid: nobody, changes: true},
		{name: "root who stays root", needsRoot: true, keeps: true},
		{name: "an ordinary user whom root started", needsRoot: true, uid: nobody,
			attributes: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}},
		{name: "the user who runs this test", uid: uid, keeps: uid == 0},
		{name: "root of a user namespace in which nobody else is", become: nobody, uid: uid, keeps: true, namespace: true,
			attributes: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}}},
	}
}

func (s situation) start(t *testing.T) (*child, order) {
	t.Helper()
	if s.needsRoot {
		requireRoot(t)
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	sandboxtest.Require(t, "no-cgo", e == 0 || !s.keeps, "with cgo, Go cannot drop capabilities on all threads")
	o := newOrder(t)
	o.Policy.UID, o.Policy.GID, o.Policy.Parent = s.become, s.become, os.Getpid()
	c := start(t, o, s.attributes)
	if c.err != "" {
		t.Fatalf("Apply: %s", c.err)
	}
	return c, o
}

// A process without walls succeeds in what one with walls is refused, or fails
// for another reason; else the test below would show nothing.
func TestWithoutWallsNothingIsRefusedLikeThat(t *testing.T) {
	requireRoot(t)
	o := newOrder(t)
	o.Free = true
	outcomes := start(t, o, nil).finish()
	for _, try := range tries() {
		got, tried := outcomes[try.name]
		switch {
		case !tried:
			t.Errorf("%s: not tried", try.name)
		case try.wall == "" && got.Errno != 0:
			t.Errorf("%s: %s", try.name, got.Text)
		case try.wall != "" && got.Errno == int(try.how):
			t.Errorf("%s: refused without a wall: %s", try.name, got.Text)
		}
	}
}

func TestAConfinedProcessCanDoItsWorkAndNothingElse(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			c, _ := s.start(t)
			outcomes := c.finish()
			for _, try := range tries() {
				t.Run(try.name, func(t *testing.T) {
					got, tried := outcomes[try.name]
					if !tried {
						t.Fatal("it was not tried")
					}
					if try.wall == "" {
						if got.Errno != 0 {
							t.Errorf("it has to work: %s", got.Text)
						}
						return
					}
					sandboxtest.Require(t, try.wall, c.walls[try.wall], "this host does not have the wall that refuses it")
					if got.Errno != int(try.how) {
						t.Errorf("it gives %d (%s), want it refused with %d (%v)", got.Errno, got.Text, int(try.how), try.how)
					}
				})
			}
		})
	}
}

func TestEveryThreadIsInside(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			c, o := s.start(t)
			if c.walls[wallUser] != s.changes {
				t.Errorf("it says that it became another user: %v, want %v", c.walls[wallUser], s.changes)
			}
			want := map[string]string{
				"Uid":    strings.TrimSpace(strings.Repeat(strconv.Itoa(s.uid)+" ", 4)),
				"CapInh": empty, "CapPrm": empty, "CapEff": empty, "CapAmb": empty, "NoNewPrivs": "1",
			}
			if s.changes {
				want["Gid"], want["Groups"] = want["Uid"], strconv.Itoa(s.uid)
			}
			if s.changes || s.keeps {
				want["CapBnd"] = empty
			}
			if c.walls[wallSeccomp] {
				want["Seccomp"] = "2" // a filter
			}
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.pid))
			if err != nil || len(threads) <= olds {
				t.Fatalf("there are %d threads, want the %d of the child and the runtime's: %v", len(threads), olds, err)
			}
			for _, path := range threads {
				got := status(t, path)
				for field, value := range want {
					if got[field] != value {
						t.Errorf("%s: %s is %q, want %q", path, field, got[field], value)
					}
				}
			}
			checkLimits(t, c.pid, o.Policy)
			if s.uid != 0 && !s.namespace { // else root is the owner, or looks like the user, anyway
				checkDump(t, c.pid)
			}
			c.finish()
		})
	}
}

// empty is a set of capabilities without any.
const empty = "0000000000000000"

func checkLimits(t *testing.T, pid int, p Policy) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{
		"Max core file size": 0, "Max locked memory": 0, "Max msgqueue size": 0, "Max open files": p.MaxOpenFiles, "Max file size": p.MaxFileSize,
	} {
		_, rest, _ := strings.Cut(string(b), "\n"+name)
		line, _, _ := strings.Cut(rest, "\n")
		got := strings.Fields(line)
		if limit := strconv.FormatUint(want, 10); len(got) < 2 || got[0] != limit || got[1] != limit {
			t.Errorf("%s is %q, want both %s", name, got, limit)
		}
	}
}

// checkDump looks at whom the process's files in /proc belong to: root, not
// its user, when no other process of the user may trace it.
func checkDump(t *testing.T, pid int) {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the memory of the process belongs to user %d", owner)
	}
}

func TestAConfinedProcessEnds(t *testing.T) {
	for _, c := range []struct {
		name, end string
		arch      string // empty: every one
		want      func(syscall.WaitStatus) bool
		says      string
	}{
		{"telling why when it panics", "panic", "", func(w syscall.WaitStatus) bool { return w.ExitStatus() == 2 }, "the reason of the panic"},
		{"by force when it makes another architecture's calls", "x32", "amd64", func(w syscall.WaitStatus) bool { return w.Signal() == syscall.SIGSYS }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sandboxtest.Require(t, "amd64", c.arch == "" || c.arch == runtime.GOARCH, "the calls are "+c.arch+"'s")
			o := newOrder(t)
			o.End = c.end
			if os.Geteuid() == 0 {
				o.Policy.UID, o.Policy.GID = nobody, nobody
			}
			child := start(t, o, nil)
			sandboxtest.Require(t, wallSeccomp, child.walls[wallSeccomp], "there is no filter here")
			if err := child.out.Encode(true); err != nil {
				t.Fatal(err)
			}
			err := child.wait()
			exit, ok := err.(*exec.ExitError)
			if !ok || !c.want(exit.Sys().(syscall.WaitStatus)) || !strings.Contains(child.stderr.String(), c.says) {
				t.Errorf("it ended with %v and said %q", err, child.stderr)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		with func(*Policy)
		wall string // empty: whatever the host has
		says string
	}{
		{"a folder to write that is not there", func(p *Policy) { p.Writable = []string{"/no/such/folder"} }, wallLandlock, "landlock: "},
		{"a folder to read that is not there", func(p *Policy) { p.Readable = []string{"/no/such/folder"} }, wallLandlock, "landlock: "},
		{"a parent that has ended", func(p *Policy) { p.Parent = 1 << 22 }, wallParent, "no life after the server: the parent is process"},
		{"half a user", func(p *Policy) { p.UID, p.GID = nobody, 0 }, "", "a user to become needs a group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrder(t)
			c.with(&o.Policy)
			child := start(t, o, nil)
			if c.wall != "" {
				here := false
				for _, w := range Probe() {
					here = here || w.Name == c.wall && w.Active
				}
				sandboxtest.Require(t, c.wall, here, "this host does not have it")
			}
			if !strings.Contains(child.err, c.says) {
				t.Errorf("Apply says %q, want it to say %q", child.err, c.says)
			}
			if err := child.wait(); err != nil {
				t.Errorf("the child: %v\n%s", err, child.stderr)
			}
		})
	}
}

// What Probe promises is what Apply does.
func TestApplyKeepsProbesPromise(t *testing.T) {
	o := newOrder(t)
	if os.Geteuid() == 0 {
		o.Policy.UID, o.Policy.GID = nobody, nobody
	}
	c := start(t, o, nil)
	if c.err != "" {
		t.Fatalf("Apply: %s", c.err)
	}
	for _, w := range Probe() {
		if c.walls[w.Name] != w.Active {
			t.Errorf("%s stands: %v; promised: %v", w.Name, c.walls[w.Name], w.Active)
		}
	}
	c.finish()
}

func TestAUserNamespacesMapIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	if err := os.WriteFile(path, []byte("         0       1000          1\n         1     100000      65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]bool{0: true, 1: true, 65534: true, 65536: true, 65537: false} {
		if mapped(path, id) != want {
			t.Errorf("user %d is mapped: %v, want %v", id, !want, want)
		}
	}
	if !mapped(path+"-missing", 7) {
		t.Error("without a map, user 7 is not there")
	}
}

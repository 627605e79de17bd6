//go:build linux && (amd64 || arm64)

package linux

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// serverRole is the name (argv[0]) of the test binary as a server that will be
// killed: its argument is the folder for boxes.
const serverRole = "paddock-test-server"

// told is what such a server says when its boxes run.
type told struct {
	Error   string
	Home    string
	Parts   []int // and what they have started
	Cgroups []string
}

// serverMain starts two boxes, says so, and waits.
func serverMain(args []string) int {
	var t told
	b, err := New(Config{Dir: args[0]})
	if err == nil {
		t.Home = b.home.dir
		for range 2 {
			var in sandbox.Instance
			if in, err = b.Start(context.Background(), sandbox.Spec{Owner: "o", Runtime: b.Probe(context.Background()).Runtimes[0].Name}); err != nil {
				break
			}
			box := in.(*instance).machine.box
			for _, p := range append(family(box.sentry.cmd.Process.Pid), family(box.gofer.cmd.Process.Pid)...) {
				t.Parts = append(t.Parts, p.pid)
			}
			if box.cgroup != nil {
				t.Cgroups = append(t.Cgroups, box.cgroup.dirs...)
			}
		}
	}
	if err != nil {
		t.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(t)
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(b) // what holds its home is closed with the last use of it
	return 0
}

// startServer starts one; it is killed at the end of the test if it has not been.
func startServer(t *testing.T, dir string) (*exec.Cmd, told) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), executable)
	cmd.Args = []string{serverRole, dir}
	hold, err := cmd.StdinPipe() // it ends by itself when this is closed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var server told
	if err != nil || json.Unmarshal(line, &server) != nil || server.Error != "" {
		t.Fatal(err, string(line))
	}
	return cmd, server
}

// livingOf counts the processes that parts and their families have.
func livingOf(parts ...int) (n int) {
	for _, part := range parts {
		for _, p := range family(part) {
			if !p.ended {
				n++
			}
		}
	}
	return n
}

// eventually waits until ok, which the kernel needs a moment for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestAKilledServersBoxesEndAndItsRestIsSwept(t *testing.T) {
	newBackend(t) // or the test is skipped
	dir := t.TempDir()
	lives, server := startServer(t, dir)
	killed, other := startServer(t, dir)
	if n := len(other.Parts); n < 6 {
		t.Errorf("two boxes have %d processes", n)
	}
	// One that does nothing any more does not notice that the server hangs up.
	for _, pid := range other.Parts {
		_ = unix.Kill(pid, unix.SIGSTOP)
	}
	if err := killed.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	eventually(t, "the end of the boxes", func() bool { return livingOf(other.Parts...) == 0 })
	for _, path := range append(other.Cgroups, other.Home) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s has gone by itself: the test shows nothing", path)
		}
	}
	b := openBackend(t, Config{Dir: dir})
	defer b.Close()
	for _, path := range append(other.Cgroups, other.Home) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range append(server.Cgroups, server.Home) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("what belongs to a living server is swept: %v", err)
		}
	}
	if n := livingOf(server.Parts...); n < 4 {
		t.Errorf("a living server has %d processes", n)
	}
	_ = lives.Process.Kill()
	_ = lives.Wait()
	eventually(t, "the end of the other server's boxes", func() bool { return livingOf(server.Parts...) == 0 })
	openBackend(t, Config{Dir: dir}).Close()
	for _, path := range append(server.Cgroups, server.Home) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

// used is what boxes must not leave behind.
type used struct{ processes, mounts, descriptors, files, cgroups int }

func (b *Backend) used(t *testing.T) (u used) {
	t.Helper()
	u.processes = len(family(os.Getpid()))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	u.mounts = bytes.Count(mounts, []byte("\n"))
	for path, n := range map[string]*int{"/proc/self/fd": &u.descriptors, b.home.dir: &u.files} {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		*n = len(entries)
	}
	for _, dir := range b.cgroups.dirs {
		all, _ := filepath.Glob(filepath.Join(dir, b.cgroups.prefix+"*"))
		u.cgroups += len(all)
	}
	return u
}

var lives = flag.Int("lives", 40, "how many boxes are started and ended, in one way or another")

func TestManyBoxesLeaveNothingBehind(t *testing.T) {
	sandboxtest.Require(t, "linux-lives", !testing.Short(), "it takes half a minute")
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Mounts = []sandbox.Mount{{Guest: "/mine", Host: folderFor(t, "work"), DiskBytes: 1 << 20}}
	before := b.used(t)
	for n := range *lives {
		in := start(t, b, spec)
		switch box := in.machine.box; n % 5 {
		case 0:
			if _, err := in.Run(t.Context(), sandbox.Command{Code: "1"}); err != nil {
				t.Error(err)
			}
		case 1:
			_ = box.sentry.cmd.Process.Kill()
		case 2:
			_ = box.gofer.cmd.Process.Kill()
		case 3:
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if other, err := b.Start(ctx, spec); err == nil {
				other.Close()
			}
		}
		in.Close()
	}
	eventually(t, fmt.Sprintf("that as much is used as before, %+v", before), func() bool { return b.used(t) == before })
}

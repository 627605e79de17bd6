//go:build linux && (amd64 || arm64)

package linux

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// stormRole is the name (argv[0]) of the test binary as a server that boots boxes
// and ends them, several at a time, until it is killed: its argument is the folder
// for boxes.
const stormRole = "paddock-test-storm"

func stormMain(args []string) int {
	b, err := New(Config{Dir: args[0]})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("begun")
	for range 3 {
		go func() {
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				if in, err := b.Start(ctx, sandbox.Spec{Owner: "o", Runtime: "bash"}); err == nil {
					_, _ = in.Run(ctx, sandbox.Command{Code: "sleep 1000 & true"})
					in.Close()
				}
				cancel()
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // it ends with the test
	return 0
}

// kills is how many servers are killed at random moments; PADDOCK_TEST_KILLS asks
// for more.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("PADDOCK_TEST_KILLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 5
	}
	return 10
}

// ownProgram gives the test binary another name, by which its processes are told
// from those of other tests.
func ownProgram(t *testing.T, name string) string {
	t.Helper()
	real, err := os.Readlink(executable)
	if err != nil {
		real = executable
	}
	path := filepath.Join(t.TempDir(), name)
	if os.Link(real, path) == nil {
		return path
	}
	from, err := os.Open(real)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
		err = joined(err, to.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// processesOf are those of a program.
func processesOf(program string) (all []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range paths {
		if exe, err := os.Readlink(p); err == nil && exe == program {
			pid, _ := strconv.Atoi(strings.Split(p, "/")[2])
			all = append(all, pid)
		}
	}
	return all
}

func startStorm(t *testing.T, program, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = []string{stormRole, dir}
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
		t.Fatal(line, err)
	}
	return cmd
}

// A server is killed at any moment of what it does: booting boxes, running programs
// in them, ending them. Nothing that it started goes on, and the next one removes
// what it left.
func TestServersThatAreKilledAtAnyMomentLeaveNothing(t *testing.T) {
	const enough = 4   // the server, and some of a box
	b := newBackend(t) // or the test is skipped
	dir, program := t.TempDir(), ownProgram(t, "program")
	most := 0
	for n := range kills() {
		cmd := startStorm(t, program, dir)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // any moment
		most = max(most, len(processesOf(program)))
		if n == kills()-1 && most < enough { // it has not come so far yet on a busy machine
			eventually(t, "a box", func() bool { most = len(processesOf(program)); return most >= enough })
		}
		if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		deadline := time.Now().Add(2 * time.Minute)
		for left := processesOf(program); len(left) > 0; left = processesOf(program) {
			if time.Now().After(deadline) {
				for _, pid := range left {
					t.Errorf("server %d: %d is left: %s", n, pid, about(pid))
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	if most < enough {
		t.Errorf("there were %d processes at most: the test shows nothing", most)
	}
	again := openBackend(t, Config{Dir: dir})
	defer again.Close()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != again.home.name {
		t.Errorf("%v, %v are left", entries, err)
	}
	for _, groups := range b.cgroups.dirs {
		all, _ := filepath.Glob(filepath.Join(groups, cgroupPrefix+"*"))
		for _, g := range all {
			if procs := readText(g, "cgroup.procs"); procs == "" && !strings.Contains(g, again.home.name) && !strings.Contains(g, b.home.name) {
				t.Logf("%s is empty: of another test, or it should not be there", g)
			}
		}
	}
}

// about tells what a process is.
func about(pid int) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	return strings.ReplaceAll(readText(dir, "cmdline"), "\x00", " ") + " " + readText(dir, "wchan") + "\n" + readText(dir, "status")
}

// Parts of boxes are killed while programs run in others: each run ends with what a
// caller can tell, and nothing is left.
func TestPartsThatAreKilledAtAnyMomentLeaveNothing(t *testing.T) {
	b := newBackend(t)
	before := b.used(t)
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			for n := range kills() / 3 {
				in, err := b.Start(t.Context(), sandbox.Spec{Owner: "o" + strconv.Itoa(worker), Runtime: "bash"})
				if err != nil {
					t.Error(err)
					return
				}
				box := in.(*instance).machine.box
				victim := []*part{box.sentry, box.gofer}[n%2].cmd.Process.Pid
				if n%3 == 2 { // one of the processes in which the box's programs run
					victim = childOf(victim, box.sentry.cmd.Process.Pid)
				}
				time.AfterFunc(time.Duration(rand.IntN(50))*time.Millisecond, func() { _ = unix.Kill(victim, unix.SIGKILL) })
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				exit, err := in.Run(ctx, sandbox.Command{Code: "for i in 1 2 3 4 5 6 7 8; do sh -c 'sleep 0.01'; done"})
				if ctx.Err() != nil {
					t.Errorf("it went on: %+v, %v", exit, err)
				}
				cancel()
				in.Close()
			}
		})
	}
	all.Wait()
	eventually(t, fmt.Sprintf("that as much is used as before, %+v", before), func() bool { return b.used(t) == before })
}

// childOf is a child of a process, or else the process itself.
func childOf(other, parent int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if f := strings.Fields(string(text)); len(f) > 0 {
		pid, _ := strconv.Atoi(f[0])
		return pid
	}
	return other
}

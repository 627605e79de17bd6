//go:build unix

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"paddock/internal/cluster/clustertest"
	"paddock/internal/fault"
)

// committer has, in the environment, the servers to which this test program commits instead
// of running tests.
const committer = "PADDOCK_TEST_CLUSTER_COMMITTER"

func TestMain(m *testing.M) {
	if urls := os.Getenv(committer); urls != "" {
		if err := commitUntilLost(urls); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// commitUntilLost makes a session, counts in it and prints each number once it is
// acknowledged, until another process has the session.
func commitUntilLost(urls string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	heads, err := OpenHeads(ctx, nc, 3)
	if err != nil {
		return err
	}
	members, err := Join(ctx, nc, "other", 3)
	if err != nil {
		return err
	}
	defer members.Close()
	claim, err := NewClaims(heads, members).Create(ctx, ann("s"), []byte("0"))
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		switch err := claim.Commit(ctx, []byte(strconv.Itoa(n))); {
		case err == nil:
			fmt.Println(n)
		case fault.KindOf(err) == fault.Conflict:
			fmt.Println("lost")
			return nil
		default:
			return err
		}
	}
}

// TestAProcessThatEndsOrStopsIsTakenOver has a process of its own commit to three servers.
// Nothing that it printed is lost, and once another has the session it commits nothing.
func TestAProcessThatEndsOrStopsIsTakenOver(t *testing.T) {
	servers := clustertest.Start(t, 3)
	me := node(t, servers, "me")
	for _, c := range []struct {
		what   string
		signal syscall.Signal
	}{{"stopped", syscall.SIGSTOP}, {"killed", syscall.SIGKILL}} {
		t.Run(c.what, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), committer+"="+servers.URLs())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			lines := bufio.NewScanner(out)
			last := 0
			for last < 10 && lines.Scan() {
				last, _ = strconv.Atoi(lines.Text())
			}
			_, err = me.Claim(t.Context(), ann("s"))
			if by, ok := HolderOf(err); !ok || by.Node != "other" {
				t.Fatalf("after %d commits of a living process: got %v", last, err)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			claim := eventually(t, me, ann("s"))
			state, _ := claim.Found()
			found, err := strconv.Atoi(string(state))
			if err != nil {
				t.Fatal(err)
			}
			if err := claim.Commit(t.Context(), []byte("mine")); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil && c.signal == syscall.SIGSTOP {
				t.Fatal(err)
			}
			end := ""
			for lines.Scan() {
				if end = strings.TrimSpace(lines.Text()); end != "lost" {
					last, _ = strconv.Atoi(end)
				}
			}
			if last > found || last < 10 {
				t.Errorf("%d was acknowledged, and %d found", last, found)
			}
			if c.signal == syscall.SIGSTOP && end != "lost" {
				t.Errorf("the process that went on ended with %q", end)
			}
			if head := read(t, me.heads, "s"); !strings.HasSuffix(string(head.Data), "\nmine") {
				t.Errorf("the head is %q", head.Data)
			}
			if err := claim.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

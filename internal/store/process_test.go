package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// childEnv makes the test binary another process: "what owner path".
const childEnv = "PADDOCK_TEST_STORE"

func TestMain(m *testing.M) {
	if what, rest, _ := strings.Cut(os.Getenv(childEnv), " "); what != "" {
		owner, path, _ := strings.Cut(rest, " ")
		if err := child(what, owner, path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// verified is a row that shows whether it is whole.
func verified(owner string, i int) Session {
	r := example(owner, i)
	r.Record = []byte(strings.Repeat(fmt.Sprint(owner, " ", i, " "), 10+i%300))
	r.TreeBytes = int64(crc32.ChecksumIEEE(r.Record))
	return r
}

func isWhole(r Session) bool {
	return r.TreeBytes == int64(crc32.ChecksumIEEE(r.Record)) && strings.HasPrefix(string(r.Record), r.Owner+" ")
}

func child(what, owner, path string) error {
	s := Open(path, nil)
	defer s.Close()
	for i := range map[string]int{"fifty": 50, "forever": 1 << 30, "churn": 400}[what] {
		s.PutSession(verified(owner, i%1000))
		switch what {
		case "fifty", "forever":
			if err := s.await(context.Background()); err != nil {
				return err
			}
			fmt.Println(i) // it is acknowledged
		case "churn":
			all, err := s.Sessions(owner)
			if err != nil && !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrUnavailable) {
				return err
			}
			for _, r := range all {
				if !isWhole(r) {
					return fmt.Errorf("a row is not what was put: %+v", r)
				}
			}
			if !s.Complete() && i%10 == 0 {
				if r, err := s.Rebuild(context.Background()); err == nil {
					_ = r.Owner(context.Background(), owner, []Session{verified(owner, 1), verified(owner, 2)}) // may be too late
					_ = r.Finish(context.Background())
				}
			}
		}
	}
	return nil
}

func start(t *testing.T, what, owner, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what+" "+owner+" "+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestProcessesThatBeginAtOnceShareOneNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	const processes = 4
	var all []*exec.Cmd
	var said []*bufio.Scanner
	for i := range processes {
		cmd, out := start(t, "fifty", fmt.Sprint("p", i), path)
		all, said = append(all, cmd), append(said, out)
	}
	for i, cmd := range all {
		last := ""
		for said[i].Scan() {
			last = said[i].Text()
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, last)
		}
	}
	s := opened(t, path)
	for i := range processes {
		if got := uncompleted(t, s, fmt.Sprint("p", i)); len(got) != 50 {
			t.Errorf("of 50 sessions of process %d there are %d", i, len(got))
		}
	}
	if _, err := os.Lstat(path + ".damaged"); err == nil {
		t.Error("a file was set aside")
	}
}

// uncompleted reads an owner's rows from an index that is not complete.
func uncompleted(t *testing.T, s *Store, owner string) map[key]state {
	t.Helper()
	var all map[key]state
	err := s.do(t.Context(), func(c *conn) (err error) {
		all, err = states(c, getOwnerStates, owner)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatWasWrittenIsThereAfterAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	s := open(path, logger(t), patient(migrations))
	complete(t, s)
	s.Close()
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	total := 0
	for round := range rounds {
		owner := fmt.Sprint("round-", round)
		cmd, said := start(t, "forever", owner, path)
		most := 1 + rand.IntN(100)
		acknowledged := 0
		for acknowledged < most && said.Scan() {
			acknowledged++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for said.Scan() { // what it said before it died
			acknowledged++
		}
		_ = cmd.Wait() // it was killed
		total += acknowledged
		s := open(path, logger(t), patient(migrations))
		all := sessions(t, s, owner)
		if len(all) < min(acknowledged, 1000) {
			t.Errorf("round %d: of %d sessions there are %d", round, acknowledged, len(all))
		}
		for _, r := range all {
			if !isWhole(r) {
				t.Errorf("round %d: a row is not what was put: %+v", round, r)
			}
		}
		if round%5 == 0 {
			sound(t, path)
		}
		s.Close()
	}
	if _, err := os.Lstat(path + ".damaged"); err == nil {
		t.Error("a file was set aside")
	}
	t.Logf("%d rows were acknowledged in %d rounds", total, rounds)
}

func TestTheIndexMayBeDeletedAgainAndAgainUnderBusyProcesses(t *testing.T) {
	sandboxtest.Require(t, "unlink", runtime.GOOS != "windows", "an open file cannot be deleted on Windows")
	path := filepath.Join(t.TempDir(), "index.db")
	const processes = 3
	ended := make(chan error, processes)
	for i := range processes {
		cmd, said := start(t, "churn", fmt.Sprint("p", i), path)
		go func() {
			last := ""
			for said.Scan() {
				last = said.Text()
			}
			if err := cmd.Wait(); err != nil {
				ended <- fmt.Errorf("process %d: %w: %s", i, err, last)
			} else {
				ended <- nil
			}
		}()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deleted := 0
	for running := processes; running > 0; {
		select {
		case err := <-ended:
			running--
			if err != nil {
				t.Error(err)
			}
		case <-tick.C:
			for _, suffix := range []string{"", walSuffix, shmSuffix, ".lock"} {
				if rand.IntN(3) == 0 && os.Remove(path+suffix) == nil {
					deleted++
				}
			}
		}
	}
	t.Logf("%d files were deleted", deleted)
	s := opened(t, path)
	complete(t, s)
	sound(t, path)
}

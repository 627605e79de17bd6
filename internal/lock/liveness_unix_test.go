//go:build unix

package lock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/lock"
)

// workerEnv makes the test binary a process that inherited a life, until its
// standard input ends.
const workerEnv = "PADDOCK_TEST_LOCK_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newLife(t *testing.T, dir string) *lock.Liveness {
	t.Helper()
	l, err := lock.NewLiveness(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestALifeEndsWithTheLastProcessThatInheritedIt(t *testing.T) {
	dir := t.TempDir()
	l := newLife(t, dir)
	if err := lock.Await(dir, l.Name(), timeout); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("it is over while this process lives: %v", err)
	}
	worker := exec.CommandContext(t.Context(), os.Args[0])
	worker.Env = append(os.Environ(), workerEnv+"=1")
	worker.ExtraFiles = []*os.File{l.File()}
	in, err := worker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := worker.StdoutPipe()
	if err == nil {
		err = worker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	if err := l.File().Close(); err != nil { // what is left of a process that was killed
		t.Fatal(err)
	}
	if err := lock.Await(dir, l.Name(), timeout); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("it is over while the worker lives: %v", err)
	}
	if err := errors.Join(in.Close(), worker.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Await(dir, l.Name(), time.Minute); err != nil {
		t.Errorf("it is not over: %v", err)
	}
}

func TestWhatEndedIsRemovedByTheNextLifeAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	lives := filepath.Join(dir, "lives")
	alive, killed, closed := newLife(t, dir), newLife(t, dir), newLife(t, dir)
	if err := errors.Join(killed.File().Close(), closed.Close(), closed.Close()); err != nil {
		t.Fatal(err)
	}
	fresh, old := filepath.Join(lives, ".new-fresh"), filepath.Join(lives, ".new-old")
	for _, path := range []string{fresh, old} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Now(), time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	next := newLife(t, dir)
	for path, want := range map[string]bool{
		filepath.Join(lives, alive.Name()): true, filepath.Join(lives, next.Name()): true, fresh: true,
		filepath.Join(lives, killed.Name()): false, filepath.Join(lives, closed.Name()): false, old: false,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
}

func TestALifeThatIsNoneIsOver(t *testing.T) {
	dir := t.TempDir()
	other := newLife(t, filepath.Join(dir, "other"))
	for _, name := range []string{"", ".", "../other/lives/" + other.Name(), "lower", "AAAA"} {
		if err := lock.Await(dir, name, timeout); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	var none *lock.Liveness
	if none.File() != nil || none.Name() != "" || none.Close() != nil {
		t.Error("the nil life has something")
	}
}

func TestALifeNeedsAFolderThatCanBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.NewLiveness(file); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it is %v", err)
	}
}

func TestAnotherUsersFolderIsToldAsThat(t *testing.T) {
	if os.Getuid() == 0 {
		told := fault.Of(lock.ErrFolder("/", fs.ErrPermission))
		if told.Message != "this user has no permission to write the state folder /" || !strings.Contains(told.Hint, "--state-dir") {
			t.Errorf("its own: %+v", told)
		}
		dir := t.TempDir()
		if err := os.Chown(dir, 54321, 54321); err != nil {
			t.Fatal(err)
		}
		told = fault.Of(lock.ErrFolder(filepath.Join(dir, "below"), fs.ErrPermission))
		if !strings.HasSuffix(told.Message, ", which belongs to the user 54321") {
			t.Errorf("another's: %+v", told)
		}
		return
	}
	dir := "/paddock-of-another-user"
	told := fault.Of(func() error { _, err := lock.NewLiveness(dir); return err }())
	if told == nil || !strings.HasSuffix(told.Message, "/paddock-of-another-user, which belongs to the user root") {
		t.Errorf("another's: %+v", told)
	}
}

func TestAFolderIsAliveWhileAProcessWorksInIt(t *testing.T) {
	dir := t.TempDir()
	if lock.Alive(dir) {
		t.Error("an empty folder is alive")
	}
	life, err := lock.NewLiveness(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !lock.Alive(dir) {
		t.Error("a folder in which this process works is not alive")
	}
	if err := life.Close(); err != nil {
		t.Fatal(err)
	}
	if lock.Alive(dir) {
		t.Error("a folder is alive after its process has ended")
	}
}

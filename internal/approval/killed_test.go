package approval_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"paddock/internal/approval"
	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
)

// dirEnv makes the test binary a process that lives an approval's life in a folder, and
// kills itself before its killEnv-th file operation.
const (
	dirEnv  = "PADDOCK_TEST_APPROVALS"
	killEnv = "PADDOCK_TEST_KILL_AT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirEnv); dir != "" {
		at, err := strconv.Atoi(os.Getenv(killEnv))
		if err != nil {
			os.Exit(3)
		}
		liveAndDie(dir, &mortal{Files: blob.OS, left: at})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// liveAndDie tells of each step that was answered.
func liveAndDie(dir string, files blob.Files) {
	s := approval.Open(dir, approval.Options{Files: files})
	a, err := s.Request(context.Background(), asked())
	if err != nil {
		os.Exit(3)
	}
	fmt.Println("asked", a.ID)
	if _, err := s.Decide(context.Background(), "local", a.ID, approval.Decision{By: "boss", Grant: true}); err != nil {
		os.Exit(3)
	}
	fmt.Println("granted", a.ID)
	if s.Use(context.Background(), a.ID, asked()) != nil {
		os.Exit(3)
	}
	fmt.Println("used", a.ID)
}

// mortal are the files of a process that is killed with its locks held and its files open.
type mortal struct {
	blob.Files
	left int
}

func (m *mortal) step() {
	if m.left--; m.left > 0 {
		return
	}
	me, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = me.Kill()
	}
	if err != nil {
		os.Exit(3)
	}
	select {} // until it is dead
}

func (m *mortal) Create(name string) (blob.File, error) {
	m.step()
	f, err := m.Files.Create(name)
	return mortalFile{f, m}, err
}
func (m *mortal) Open(name string) (blob.File, error)        { m.step(); return m.Files.Open(name) }
func (m *mortal) Rename(from, to string) error               { m.step(); return m.Files.Rename(from, to) }
func (m *mortal) Remove(name string) error                   { m.step(); return m.Files.Remove(name) }
func (m *mortal) Mkdir(name string) error                    { m.step(); return m.Files.Mkdir(name) }
func (m *mortal) ReadDir(name string) ([]fs.DirEntry, error) { m.step(); return m.Files.ReadDir(name) }
func (m *mortal) SyncDir(name string) error                  { m.step(); return m.Files.SyncDir(name) }

type mortalFile struct {
	blob.File
	of *mortal
}

func (f mortalFile) Write(p []byte) (int, error) { f.of.step(); return f.File.Write(p) }
func (f mortalFile) Sync() error                 { f.of.step(); return f.File.Sync() }

// A process is killed before each of its file operations, with its locks held. The next
// one is not kept out, and finds all that was answered.
func TestAProcessIsKilledAtAnyStep(t *testing.T) {
	for n := 1; ; n++ {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), dirEnv+"="+dir, killEnv+"="+strconv.Itoa(n), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var l lived
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var step string
			if _, err := fmt.Sscan(lines.Text(), &step, &l.id); err != nil {
				t.Fatal(err)
			}
			l.asked, l.granted, l.used = true, step != "asked", step == "used"
		}
		err = cmd.Wait()
		checkAfter(t, fmt.Sprintf("killed at step %d", n), approval.Open(dir, approval.Options{}), l)
		if err == nil {
			if !l.used || n < 10 {
				t.Errorf("it came to its end after %d steps: %+v", n, l)
			}
			return
		}
		if cmd.ProcessState.ExitCode() == 3 {
			t.Fatalf("step %d failed", n)
		}
	}
}

// errKilled is what every file operation gives of a process that is not there any more.
var errKilled = errors.New("killed")

// A process is killed, or loses its power, at each step of an approval's life. The next
// one finds what was answered; what was not is as before or as after, and in no case is a
// call let through twice, or one that nobody granted.
func TestKilledAtAnyStep(t *testing.T) {
	for _, power := range []bool{false, true} {
		for n := 1; ; n++ {
			root := t.TempDir()
			disk, err := blobtest.New(root)
			if err != nil {
				t.Fatal(err)
			}
			disk.SetFault(blobtest.From(n, errKilled))
			life := live(t.Context(), approval.Open(filepath.Join(root, "approvals"), approval.Options{Files: disk}))
			if disk.SetFault(nil); power {
				if err := disk.Cut(rand.New(rand.NewPCG(uint64(n), 7))); err != nil {
					t.Fatal(err)
				}
			}
			checkAfter(t, fmt.Sprintf("killed at step %d, power cut: %v", n, power), approval.Open(filepath.Join(root, "approvals"), approval.Options{Files: disk}), life)
			if life.used {
				break // it got to the end
			}
		}
	}
}

// lived is how far a process came: what was answered.
type lived struct {
	asked, granted, used bool
	id                   string
}

func live(ctx context.Context, s *approval.Store) (l lived) {
	a, err := s.Request(ctx, asked())
	if l.asked, l.id = err == nil, a.ID; err != nil {
		return l
	}
	_, err = s.Decide(ctx, "local", a.ID, approval.Decision{By: "boss", Grant: true})
	if l.granted = err == nil; err != nil {
		return l
	}
	l.used = s.Use(ctx, a.ID, asked()) == nil
	return l
}

func checkAfter(t *testing.T, name string, s *approval.Store, l lived) {
	t.Helper()
	a, err := s.Request(t.Context(), asked())
	switch {
	case err != nil:
		t.Errorf("%s: it is asked for again: %v", name, err)
	case l.asked && a.ID != l.id:
		t.Errorf("%s: what was asked for is forgotten", name)
	case l.granted && a.State != approval.Granted && a.State != approval.Used:
		t.Errorf("%s: what was granted is %v", name, a.State)
	case l.used && a.State != approval.Used:
		t.Errorf("%s: what was used is %v", name, a.State)
	case !l.asked && a.State != approval.Pending:
		t.Errorf("%s: what nobody decided is %v", name, a.State)
	}
	if a.State == approval.Pending {
		a = decide(t, s, a, true)
	}
	err = s.Use(t.Context(), a.ID, asked())
	if (a.State == approval.Granted) != (err == nil) {
		t.Errorf("%s: as %v it is used: %v", name, a.State, err)
	}
	if err := s.Use(t.Context(), a.ID, asked()); err == nil {
		t.Errorf("%s: it is used twice", name)
	}
}

//go:build unix

package workspace

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func mkfifo(p string) error { return syscall.Mkfifo(p, 0o600) }

func TestFIFOsAndSocketsAreNeitherWaitedForNorKept(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("d/a", "x")
	if err := errors.Join(mkfifo(g.path("fifo")), mkfifo(g.path("d/fifo"))); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.path("s"), Net: "unix"})
	if err == nil { // its path may be too long
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	want, changes := g.capture(nil)
	if want.files() != 1 {
		t.Errorf("want.files(): got %v, want 1", want.files())
	}
	if !reflect.DeepEqual(changes, []Change{{Path: "d/a", Change: Added, Size: 1}}) {
		t.Errorf("changes: got %v, want %v", changes, []Change{{Path: "d/a", Change: Added, Size: 1}})
	}
	g.plant("f", "a file where a FIFO will be")
	with, _ := g.capture(nil)
	if err := errors.Join(os.Remove(g.path("f")), mkfifo(g.path("f"))); err != nil {
		t.Fatal(err)
	}
	g.apply(with, nil)
	g.apply(want, nil)
	if got := describe(t, g.dir); strings.Count(got, "\n") != 2 {
		t.Errorf("there is left\n%s", got)
	}
}

func TestWhatWasSwappedIsNotOpened(t *testing.T) {
	g := newTestTree(t, Options{})
	g.plant("other/f", "inside")
	for name, swap := range map[string]func(p string) error{
		"another":               func(p string) error { return os.Rename(g.path("new"), p) },
		"a link to the inside":  func(p string) error { return os.Symlink("other", p) },
		"a link to a file":      func(p string) error { return os.Symlink("other/f", p) },
		"a link to the outside": func(p string) error { return os.Symlink("../outside", p) },
		"a link to itself":      func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"a FIFO":                mkfifo,
	} {
		t.Run(name, func(t *testing.T) {
			for _, folder := range []bool{true, false} {
				create := func(p string) error { return os.WriteFile(p, nil, 0o644) }
				if folder {
					create = func(p string) error { return os.Mkdir(p, 0o755) }
				}
				p := g.path("it")
				if err := errors.Join(os.RemoveAll(p), os.RemoveAll(g.path("new")), create(p), create(g.path("new"))); err != nil {
					t.Fatal(err)
				}
				info, err := os.Lstat(p)
				if err == nil {
					err = errors.Join(os.Rename(p, g.path("was")), swap(p))
				}
				if err != nil {
					t.Fatal(err)
				}
				if folder {
					_, _, err = openFolder(g.root(), "it", info, 0)
				} else {
					_, err = openFile(g.root(), "it", info)
				}
				if !errors.Is(err, errSwapped) {
					t.Errorf("folder %t: got %v", folder, err)
				}
				if err := errors.Join(os.RemoveAll(p), os.RemoveAll(g.path("was"))); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestATreeIsAFolder(t *testing.T) {
	g := newTestTree(t, Options{})
	if err := mkfifo(g.path("fifo")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(g.path("fifo"), Options{}); err == nil {
		t.Error("a FIFO was opened")
	}
}

// asUser runs the test that calls it again, as an ordinary user and in a folder
// of that user's, and tells whether this is that run.
func asUser(t *testing.T) (there bool) {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("", "paddock-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	test := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("the test cannot be started again here:", err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(test, self, 0o755), os.Chmod(test, 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o777), os.Chmod(filepath.Join(dir, "tmp"), 0o777)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), test, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = filepath.Join(dir, "tmp")
	cmd.Env = append(cmd.Environ(), "TMPDIR="+cmd.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as an ordinary user: got error %v, want none: %s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as an ordinary user: got %q, want %q in it", out, "--- PASS: "+t.Name())
	}
	return false
}

// wantClosed checks that the folder closed and file, at the top of a tree, may not be used by anyone.
func (g *testTree) wantClosed() {
	g.t.Helper()
	for _, p := range []string{"closed", "file"} {
		info, err := os.Lstat(g.path(p))
		if err != nil {
			g.t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0 {
			g.t.Errorf("the mode of %s: got %v, want 0", p, got)
		}
	}
}

func TestWhatItsOwnerMayNotReadIsKeptAllTheSame(t *testing.T) {
	if !asUser(t) {
		return
	}
	g := newTestTree(t, Options{})
	g.plant("closed/d/f", "in a closed folder")
	g.plant("file", "that nobody may read")
	forbid := func() error {
		return errors.Join(os.Chmod(g.path("file"), 0), os.Chmod(g.path("closed/d"), 0o300), os.Chmod(g.path("closed"), 0))
	}
	allow := func() error {
		return errors.Join(os.Chmod(g.path("closed"), 0o700), os.Chmod(g.path("closed/d"), 0o700), os.Chmod(g.path("file"), 0o600))
	}
	defer allow() // so that the folder can be removed
	if err := forbid(); err != nil {
		t.Fatal(err)
	}
	want, _ := g.capture(nil)
	switch {
	case want.files() != 2:
		t.Errorf("want.files() = %v, want 2: %v", want.files(), want.unknown())
	case len(want.unknown()) != 0:
		t.Errorf("want.unknown() = %v, want none", want.unknown())
	case want.bytes() != int64(len("in a closed folder")+len("that nobody may read")):
		t.Errorf("want.bytes() = %v, want %v: %v",
			want.bytes(), int64(len("in a closed folder")+len("that nobody may read")), want.unknown())
	}
	g.wantClosed()
	switch again, changes := g.capture(settle(want)); {
	case len(changes) != 0:
		t.Errorf("a second look has the changes: changes = %v, want none: %q", changes, g.puts)
	case !again.Same(want):
		t.Errorf("a second look has the changes: again.Same(want) = false, want true: %v, %q",
			changes, g.puts)
	case len(g.puts) != 2:
		t.Errorf("a second look has the changes: len(g.puts) = %d, want 2: %+v", len(g.puts), g.puts)
	}
	// The guest removes nothing that it closed, but changes it.
	if err := errors.Join(allow(), os.WriteFile(g.path("closed/d/f"), []byte("x"), 0o600), os.WriteFile(g.path("closed/d/g"), []byte("x"), 0), os.RemoveAll(g.path("file")),
		os.MkdirAll(g.path("file/more"), 0o755), os.WriteFile(g.path("file/more/f"), nil, 0), os.Chmod(g.path("file/more"), 0), os.Chmod(g.path("file"), 0), forbid()); err != nil {
		t.Fatal(err)
	}
	after, changes := g.apply(want, want)
	if want := "closed/d/f closed/d/g file file/more/f"; paths(changes) != want {
		t.Errorf("the changes are %v", changes)
	}
	g.wantClosed()
	if !after.Same(want) {
		t.Error("the listing is the one that was wanted: got false, want true")
	}
	if err := allow(); err != nil {
		t.Fatal(err)
	}
	for p, text := range map[string]string{"closed/d/f": "in a closed folder", "file": "that nobody may read"} {
		if data, err := os.ReadFile(g.path(p)); err != nil {
			t.Errorf("%s: got error %v, want none", p, err)
		} else if string(data) != text {
			t.Errorf("%s: got %q, want %q", p, string(data), text)
		}
	}
	if err := forbid(); err != nil {
		t.Fatal(err)
	}
	g.apply(nil, nil)
	if left, err := os.ReadDir(g.dir); err != nil {
		t.Error(err)
	} else if len(left) != 0 {
		t.Errorf("os.ReadDir(g.dir): got %v, want none", left)
	}
	if err := errors.Join(os.Mkdir(g.path("closed"), 0o700), os.Mkdir(g.path("closed/d"), 0o700), os.WriteFile(g.path("file"), nil, 0o600)); err != nil {
		t.Fatal(err) // for allow
	}
}

func paths(changes []Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.Path)
	}
	return strings.Join(all, " ")
}

// What is somebody else's and closed to us is said not to be known.
func TestWhatNobodyCanReadIsSaidToBeUnknown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of others")
	}
	g := newTestTree(t, Options{})
	g.plant("theirs", "secret")
	g.plant("folder/f", "secret")
	g.plant("ours", "x")
	const nobody = 65534
	err := errors.Join(os.Chmod(filepath.Dir(g.dir), 0o755), os.Chmod(filepath.Dir(filepath.Dir(g.dir)), 0o755),
		os.Chmod(g.path("theirs"), 0), os.Chmod(g.path("folder"), 0), os.Chmod(g.dir, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	// The file system asks for the thread's user: become somebody else in this
	// thread alone, which the runtime gives up afterwards.
	asThread(t, nobody, func() {
		want, _ := g.capture(nil)
		if unknown := want.unknown(); !slices.Equal(unknown, []string{"folder", "theirs"}) {
			t.Errorf("unknown: got %q, want %q", unknown, []string{"folder", "theirs"})
		} else if want.files() != 2 {
			t.Errorf("unknown: want.files(): got %v, want 2", want.files())
		}
		want = again(t, want)
		if _, changes := g.capture(want); len(changes) != 0 {
			t.Errorf("a second look has the changes %v", changes)
		}
		g.plant("new", "x")
		after, changes := g.apply(want, want)
		if paths(changes) != "new" {
			t.Errorf("paths(changes): got %q, want %q", paths(changes), "new")
		}
		if !slices.Equal(after.unknown(), []string{"folder", "theirs"}) {
			t.Errorf("after.unknown(): got %q, want %q", after.unknown(), []string{"folder", "theirs"})
		}
	})
	if data, err := os.ReadFile(g.path("folder/f")); err != nil {
		t.Error(err)
	} else if string(data) != "secret" {
		t.Errorf(`os.ReadFile(g.path("folder/f")): got %q, want %q`, string(data), "secret")
	}
}

func TestWhatIsBroughtBackBelongsToTheGuest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const guest = 12345
	g := newTestTree(t, Options{UID: guest, GID: guest + 1})
	g.plant("d/f", "x")
	if err := errors.Join(os.Symlink("../../outside/secret", g.path("d/l")), os.Chmod(g.path("d/f"), 0o4755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	want, _ := g.capture(nil)
	g.apply(nil, nil)
	g.apply(want, nil)
	for _, p := range []string{"d", "d/f", "d/l"} {
		info, err := os.Lstat(g.path(p))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != guest {
			t.Errorf("%s belongs: st.Uid: got %v, want %v", p, st.Uid, guest)
		} else if st.Gid != guest+1 {
			t.Errorf("%s belongs: st.Gid: got %v, want %v", p, st.Gid, guest+1)
		}
		if info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
			t.Errorf("%s is %v", p, info.Mode())
		}
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(g.dir), "outside", "secret"))
	if err != nil {
		t.Fatalf("what a link leads to: got error %v, want none", err)
	}
	if info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("what a link leads to: info.Sys().(*syscall.Stat_t).Uid: got %v, want 0",
			info.Sys().(*syscall.Stat_t).Uid)
	}
}

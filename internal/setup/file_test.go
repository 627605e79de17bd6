package setup

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// to is an edit that writes text whatever was there.
func to(text string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return []byte(text), nil }
}

// file writes a file with mode into a fresh folder.
func file(t *testing.T, text string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// expect looks at a file, and at how many others lie beside it.
func expect(t *testing.T, path, text string, mode fs.FileMode, others int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || string(b) != text {
		t.Errorf("%s has %q (%v), want %q", path, b, err, text)
	}
	if info, err := os.Stat(path); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != mode) {
		t.Errorf("%s has the mode %v, want %v", path, info.Mode().Perm(), mode)
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != others+1 {
		t.Errorf("beside %s there is %v, want %d more files", path, all, others)
	}
}

func TestAFileIsReplacedWithACopyBesideIt(t *testing.T) {
	path := file(t, "old", 0o640)
	for i, text := range []string{"new", "newer"} { // in the same second, most likely
		c, err := Update(path, 0o600, to(text))
		if err != nil || !c.Changed || !c.Shared || !strings.HasPrefix(c.Backup, path+".paddock-") {
			t.Fatalf("it did %+v (%v)", c, err)
		}
		expect(t, path, text, 0o640, i+1)
		expect(t, c.Backup, []string{"old", "new"}[i], 0o640, i+1)
	}
	if c, err := Update(path, 0o600, to("newer")); err != nil || c.Changed || c.Backup != "" {
		t.Errorf("what is there already did %+v (%v)", c, err)
	}
	expect(t, path, "newer", 0o640, 2)
}

func TestANewFileIsItsUsersOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "er", "mcp.json")
	if c, err := Update(path, 0o600, to("new")); err != nil || !c.Changed || c.Backup != "" || c.Shared {
		t.Fatalf("it did %+v (%v)", c, err)
	}
	expect(t, path, "new", 0o600, 0)
	if info, err := os.Stat(filepath.Dir(path)); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("its folder has the mode %v (%v)", info.Mode().Perm(), err)
	}
}

func TestALinkIsFollowedAndStays(t *testing.T) {
	path := file(t, "old", 0o600)
	folder := t.TempDir()
	for name, to := range map[string]string{"link": path, "again": "link", "dangling": "nothing-yet"} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Skipf("no links here: %v", err)
		}
	}
	c, err := Update(filepath.Join(folder, "again"), 0o600, to("new"))
	if err != nil || filepath.Dir(c.Backup) != folder {
		t.Errorf("it did %+v (%v)", c, err)
	}
	expect(t, path, "new", 0o600, 0)
	if _, err := Update(filepath.Join(folder, "dangling"), 0o600, to("new")); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"again": "link", "dangling": "nothing-yet"} {
		if got, err := os.Readlink(filepath.Join(folder, name)); got != want {
			t.Errorf("%s is a link to %q (%v)", name, got, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(folder, "nothing-yet")); string(b) != "new" {
		t.Errorf("where the link led there is %q (%v)", b, err)
	}
}

func TestWhatCannotBeWrittenStays(t *testing.T) {
	readOnly, busy, folder := file(t, "old", 0o444), file(t, "old", 0o600), t.TempDir()
	broken := file(t, "old", 0o600)
	for _, c := range []struct {
		about, path string
		edit        func([]byte) ([]byte, error)
		want        fault.Kind
	}{
		{"a read-only file", readOnly, to("new"), fault.Denied},
		{"a folder", folder, to("new"), fault.Invalid},
		{"a file that somebody writes to meanwhile", busy, func(old []byte) ([]byte, error) {
			return []byte("new"), os.WriteFile(busy, []byte("theirs"), 0o600)
		}, fault.Conflict},
		{"an edit that fails", broken, func([]byte) ([]byte, error) { return nil, fault.New(fault.Invalid, "no") }, fault.Invalid},
	} {
		if _, err := Update(c.path, 0o600, c.edit); fault.KindOf(err) != c.want {
			t.Errorf("%s gives %v (%s), want %s", c.about, err, fault.KindOf(err), c.want)
		}
	}
	expect(t, readOnly, "old", 0o444, 0)
	expect(t, busy, "theirs", 0o600, 0)
	expect(t, broken, "old", 0o600, 0)
}

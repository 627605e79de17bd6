//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnImageIsOnlyRead(t *testing.T) {
	image := t.TempDir()
	for _, dir := range []string{"usr", "bin", "lib", "lib64", "tmp", "own", "etc"} {
		if err := os.Mkdir(filepath.Join(image, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(image, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(image, "own", "f"), []byte("before"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"passwd": "root:x:0:0:the image's:/root:/bin/sh", "group": "", "hosts": "1.2.3.4 bad\n"} {
		if err := os.WriteFile(filepath.Join(image, "etc", name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	root, err := imageRootfs(Image{Dir: image}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"usr", "bin", "lib", "lib64"} {
		if _, err := os.Stat("/" + dir); err == nil {
			root.steps = append(root.steps, step{Path: rootPath + "/" + dir, Bind: "/" + dir, ReadOnly: true})
		}
	}
	for name, overlay := range map[string]int64{"as it is": 0, "under an overlay": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t, "/bin/sh", "-c", "id -un; id -gn; cat /etc/passwd /etc/hosts; echo bad > /etc/passwd; echo after > /own/f; echo new > /own/new; rm /own/f; mv /own /other; mkdir /made /mine; cat /own/f")
			p.root, p.overlayBytes = root, overlay
			got := output(t, bootBox(t, newLauncher(t), p))
			if overlay == 0 && !strings.Contains(got, "Read-only") {
				t.Errorf("it printed %q", got)
			}
			for _, want := range []string{"sandbox\nsandbox\n", "the image's", "127.0.0.1 localhost"} {
				if !strings.Contains(got, want) {
					t.Errorf("%q lacks %q", got, want)
				}
			}
			if text, err := os.ReadFile(filepath.Join(image, "etc", "passwd")); err != nil || strings.Contains(string(text), "sandbox") {
				t.Errorf("the image's users are %q, %v", text, err)
			}
			text, err := os.ReadFile(filepath.Join(image, "own", "f"))
			if err != nil || string(text) != "before" {
				t.Errorf("the file has %q, %v", text, err)
			}
			entries, _ := os.ReadDir(image)
			inside, _ := os.ReadDir(filepath.Join(image, "own"))
			if len(entries) != 7 || len(inside) != 1 {
				t.Errorf("the image has %v and %v", entries, inside)
			}
		})
	}
}

func TestAnImageMayHoldAnythingWhereItsUsersShouldBe(t *testing.T) {
	for name, create := range map[string]func(etc string) error{
		"a link out": func(etc string) error { return os.Symlink("/etc/shadow", filepath.Join(etc, "passwd")) },
		"a folder":   func(etc string) error { return os.Mkdir(filepath.Join(etc, "passwd"), 0o755) },
		"nothing":    func(string) error { return nil },
		"a giant": func(etc string) error {
			return errors.Join(os.WriteFile(filepath.Join(etc, "passwd"), nil, 0o644), os.Truncate(filepath.Join(etc, "passwd"), 1<<40))
		},
		"no /etc":     os.Remove,
		"a link /etc": func(etc string) error { return errors.Join(os.Remove(etc), os.Symlink("/etc", etc)) },
	} {
		t.Run(name, func(t *testing.T) {
			image := t.TempDir()
			if err := os.Mkdir(filepath.Join(image, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := create(filepath.Join(image, "etc")); err != nil {
				t.Fatal(err)
			}
			r, err := imageRootfs(Image{Dir: image}, "")
			if err != nil || len(r.steps) != 1 {
				t.Errorf("%+v, %v", r.steps, err)
			}
		})
	}
}

func TestAListOfUsersGetsOneMore(t *testing.T) {
	for list, want := range map[string]string{
		"":                         passwdEntry + "\n",
		"root:x:0:0::/:/bin/sh":    "root:x:0:0::/:/bin/sh\n" + passwdEntry + "\n",
		"me:x:1000:1000::/:/bin/x": "me:x:1000:1000::/:/bin/x",
		":\n::\nx":                 ":\n::\nx\n" + passwdEntry + "\n",
	} {
		if got := withEntry(list, passwdEntry, 2); got != want {
			t.Errorf("%q became %q", list, got)
		}
	}
}

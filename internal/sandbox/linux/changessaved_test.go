//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// A box that goes on from what was saved compares what it remembered before it goes on,
// and so does one that goes on from the same in a copy of the folder, with other inodes.
func TestARestoredBoxSeesTheFilesThatThereAre(t *testing.T) {
	a := &asked{t: t, backend: newBackend(t), dir: folderFor(t, "workspace"), control: folderFor(t, "control")}
	in := start(t, a.backend, a.spec())
	says(t, in, `import os
os.mkdir("d")
for name in "one", "d/two", "d/three": open(name, "w").write(name)
os.symlink("one", "link")
os.link("one", "other")
gone = open("gone", "w+"); gone.write("still here"); gone.flush(); os.remove("gone")
held = open("d/two", "r+")
os.chdir("d")
(os.path.exists("/workspace/new"), os.listdir("/workspace"), open("/workspace/link").read())`)
	state := saved(t, a.backend)
	in.Close()

	fork := a.spec()
	fork.Box, fork.Machine = "two", state
	fork.Mounts[0].Host = folderFor(t, "fork")
	if out, err := exec.Command("cp", "-a", a.dir+"/.", fork.Mounts[0].Host).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Neither is what the sentry remembers.
	for _, dir := range []string{a.dir, fork.Mounts[0].Host} {
		for name, text := range map[string]string{"new": "new", "one": "longer than before", "d/three": "3"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("d/three", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	again := a.spec()
	again.Machine = state
	for _, spec := range []sandbox.Spec{again, fork} {
		in := start(t, a.backend, spec)
		if !in.WasRestored() {
			t.Fatal("it was not restored")
		}
		got := says(t, in, `held.write("TWO"); held.flush(); gone.seek(0)
(os.getcwd(), os.path.exists("/workspace/new"), sorted(os.listdir("/workspace")), os.stat("/workspace/other").st_size, os.readlink("/workspace/link"), open("/workspace/link").read(), open("/app/other").read(), gone.read(), open("two").read())`)
		want := "('/workspace/d', True, ['d', 'link', 'new', 'one', 'other'], 18, 'd/three', '3', 'longer than before', 'still here', 'TWOwo')"
		if got != want {
			t.Errorf("%s: %s, not %s", spec.Box, got, want)
		}
		if text, err := os.ReadFile(filepath.Join(spec.Mounts[0].Host, "d/two")); err != nil || string(text) != "TWOwo" {
			t.Errorf("%s: the host has %q, %v", spec.Box, text, err)
		}
		in.Close()
	}
}

// Programs work while the server changes files all the time: each sees its own files as
// it left them.
func TestProgramsWorkWhileTheServerChangesFiles(t *testing.T) {
	a := newAsked(t)
	a.ask(`import subprocess
work = """
import os, sys
me = sys.argv[1]
os.mkdir(me)
for n in range(150):
    name = f"{me}/{n}"
    with open(name, "w") as f: f.write(name)
    assert os.stat(name).st_size == len(name)
    os.rename(name, name + ".new")
    assert not os.path.exists(name)
    with open(name + ".new") as f: assert f.read() == name
    assert len(os.listdir(me)) == 1, os.listdir(me)
    os.makedirs(f"{me}/{n}.d/a/b")
    for sub in "/a/b", "/a", "": os.rmdir(f"{me}/{n}.d{sub}")
    os.remove(name + ".new")
print("done")
"""
all = [subprocess.Popen([sys.executable, "-c", work, f"p{n}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for n in range(4)]`)
	stop := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			name := a.path(fmt.Sprint("outside", n%20))
			if n%2 == 0 {
				_ = os.Mkdir(name, 0o777)
			} else {
				_ = os.RemoveAll(a.path(fmt.Sprint("outside", n*7%20)))
			}
			a.backend.FilesChanged("alice", "one")
		}
	}()
	a.want(`answer = [p.communicate()[0].decode() for p in all]`, `["done\n", "done\n", "done\n", "done\n"]`)
	close(stop)
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// asked is a program that runs in a box all the time and does what it is asked for: no
// run begins between two questions.
type asked struct {
	t       testing.TB
	backend *Backend
	dir     string // the host's, of /workspace
	control string // the host's, of a folder that is not cached
	n       int
}

const askedProgram = `
import json, os, stat, sys, time, mmap, traceback
n = 0
while True:
    n += 1
    while not os.path.exists(f"/control/{n}"):
        time.sleep(0.001)
    with open(f"/control/{n}") as asked:
        code = asked.read()
    if code == "end":
        break
    try:
        answer = None
        exec(code, globals())
        text = json.dumps(answer)
    except BaseException as e:
        text = json.dumps("error: " + traceback.format_exc())
    with open(f"/control/new", "w") as asked:
        asked.write(text)
    os.rename("/control/new", f"/control/answer{n}")
`

// newAsked starts one, and ends it with the test.
func newAsked(t testing.TB) *asked {
	a := &asked{t: t, backend: newBackend(t), dir: folderFor(t, "workspace"), control: folderFor(t, "control")}
	in := start(t, a.backend, a.spec())
	a.run(in)
	return a
}

func (a *asked) spec() sandbox.Spec {
	return sandbox.Spec{Owner: "alice", Runtime: "python", Box: "one", Dir: "/workspace", Mounts: []sandbox.Mount{
		{Guest: "/workspace", Aliases: []string{"/app"}, Host: a.dir, DiskBytes: 1 << 30, Told: true},
		{Guest: "/control", Host: a.control, DiskBytes: 1 << 30},
	}}
}

// run has an instance answer from here on.
func (a *asked) run(in sandbox.Instance) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = in.Run(a.t.Context(), sandbox.Command{Code: askedProgram})
	}()
	end = func() {
		a.put("end")
		<-done
	}
	a.t.Cleanup(func() { in.Close(); <-done })
	return end
}

func (a *asked) put(code string) {
	a.n++
	path := filepath.Join(a.control, "question")
	if err := os.WriteFile(path, []byte(code), 0o666); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(a.control, fmt.Sprint(a.n))); err != nil {
		a.t.Fatal(err)
	}
}

// ask runs code in the box, and gives what it leaves in answer, as JSON.
func (a *asked) ask(code string) string {
	a.t.Helper()
	a.put(code)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(a.control, fmt.Sprintf("answer%d", a.n))); err == nil {
			return string(text)
		}
	}
	a.t.Fatalf("no answer to %s", code)
	return ""
}

// want asks, and compares.
func (a *asked) want(code, answer string) {
	a.t.Helper()
	if got := a.ask(code); got != answer {
		a.t.Errorf("%s: %s, not %s", code, got, answer)
	}
}

// change changes something from outside, and tells so.
func (a *asked) change(do func() error) {
	a.t.Helper()
	if err := do(); err != nil {
		a.t.Fatal(err)
	}
	a.backend.FilesChanged("alice", "one")
}

func (a *asked) path(name string) string { return filepath.Join(a.dir, name) }

func (a *asked) write(name, text string) {
	a.t.Helper()
	a.change(func() error {
		temp := a.path("new")
		if err := errors.Join(os.WriteFile(temp, []byte(text), 0o666), os.Chmod(temp, 0o666)); err != nil {
			return err
		}
		return os.Rename(temp, a.path(name))
	})
}

func TestABoxSeesWhatTheServerChanges(t *testing.T) {
	a := newAsked(t)
	a.want(`answer = (os.path.exists("a"), os.listdir("."))`, `[false, []]`)
	a.write("a", "one")
	a.want(`answer = (os.path.exists("a"), os.listdir("."), os.stat("a").st_size, open("a").read())`, `[true, ["a"], 3, "one"]`)
	a.want(`answer = os.listdir("/app")`, `["a"]`)

	// A file that is open stays what it was; its name means the new one.
	a.want(`f = open("a"); answer = f.read()`, `"one"`)
	a.write("a", "another")
	a.want(`f.seek(0); answer = (f.read(), open("a").read(), os.stat("a").st_size)`, `["one", "another", 7]`)
	a.want(`answer = open("/app/a").read()`, `"another"`)

	// Sizes, modes and times of a file that is the same one.
	a.change(func() error { return os.Truncate(a.path("a"), 3) })
	a.want(`answer = (os.stat("a").st_size, open("a").read())`, `[3, "ano"]`)
	a.change(func() error { return os.Chmod(a.path("a"), 0o640) })
	a.want(`answer = oct(os.stat("a").st_mode & 0o7777)`, `"0o640"`)
	a.change(func() error { return os.Chmod(a.path("a"), 0o666) })
	a.change(func() error { return os.Chtimes(a.path("a"), time.Time{}, time.Unix(1e9, 5000)) })
	a.want(`answer = os.stat("a").st_mtime_ns`, `1000000000000005000`)

	// Mapped memory shows what is in the file.
	a.want(`f = open("a", "r+b"); m = mmap.mmap(f.fileno(), 3); answer = m[:].decode()`, `"ano"`)
	a.change(func() error { return os.WriteFile(a.path("a"), []byte("xyz"), 0o666) })
	a.want(`answer = (m[:].decode(), open("a").read()); m[0:1] = b"q"; m.flush()`, `["xyz", "xyz"]`)
	if text, err := os.ReadFile(a.path("a")); err != nil || string(text) != "qyz" {
		t.Errorf("%q, %v", text, err)
	}

	// Removed, and made by the box again.
	a.change(func() error { return os.Remove(a.path("a")) })
	a.want(`answer = (os.path.exists("a"), os.listdir("."))`, `[false, []]`)
	a.want(`open("a", "x").write("mine"); answer = os.listdir(".")`, `["a"]`)
	if text, err := os.ReadFile(a.path("a")); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}

	// A folder that the box is in is replaced; the one that it is in is gone.
	a.want(`os.makedirs("d/e"); open("d/e/f", "w").write("old"); os.chdir("d/e"); answer = os.listdir(".")`, `["f"]`)
	a.change(func() error {
		if err := os.Rename(a.path("d"), a.path("was")); err != nil {
			return err
		}
		return os.MkdirAll(a.path("d/g"), 0o777)
	})
	a.want(`answer = (os.listdir("/workspace/d"), os.path.exists("/workspace/d/e"), open("/workspace/was/e/f").read())`, `[["g"], false, "old"]`)
	a.want(`os.chdir("/workspace"); answer = sorted(os.listdir("."))`, `["a", "d", "was"]`)

	// A folder in the place of a file, a file in the place of a folder, and links.
	a.change(func() error {
		if err := os.Remove(a.path("a")); err != nil {
			return err
		}
		return os.Mkdir(a.path("a"), 0o777)
	})
	a.want(`answer = os.path.isdir("a")`, `true`)
	a.change(func() error {
		if err := os.Remove(a.path("a")); err != nil {
			return err
		}
		return os.Symlink("d", a.path("a"))
	})
	a.want(`answer = (os.readlink("a"), os.listdir("a"))`, `["d", ["g"]]`)
	a.change(func() error {
		if err := os.Symlink("was", a.path("link")); err != nil {
			return err
		}
		return os.Rename(a.path("link"), a.path("a"))
	})
	a.want(`answer = (os.readlink("a"), os.listdir("a"))`, `["was", ["e"]]`)

	// Another name of a file.
	a.write("one", "1")
	a.want(`answer = os.stat("one").st_nlink`, `1`)
	a.change(func() error { return os.Link(a.path("one"), a.path("two")) })
	a.want(`answer = (os.stat("one").st_nlink, os.path.samefile("one", "two"))`, `[2, true]`)
	a.want(`f = open("two", "a"); f.write("2"); f.flush(); answer = os.stat("one").st_size`, `2`)
	a.write("two", "other")
	a.want(`answer = (os.stat("one").st_nlink, open("one").read(), open("two").read())`, `[1, "12", "other"]`)
	// A file that is open gets another name, and none of those that were known.
	a.change(func() error { return os.Rename(a.path("one"), a.path("three")) })
	a.change(func() error { return os.WriteFile(a.path("three"), []byte("longer"), 0o666) })
	a.want(`answer = (os.path.exists("one"), os.stat("three").st_size, open("three").read())`, `[false, 6, "longer"]`)

	// What only the sentry has stays.
	a.want(`import socket; s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen(); os.mkfifo("p"); answer = sorted(os.listdir("."))`,
		`["a", "d", "p", "s", "three", "two", "was"]`)
	a.write("two", "more")
	a.want(`c = socket.socket(socket.AF_UNIX); c.connect("s"); answer = (sorted(os.listdir(".")), stat.S_ISFIFO(os.stat("p").st_mode))`,
		`[["a", "d", "p", "s", "three", "two", "was"], true]`)
}

// entry is what both sides say of one path.
type entry struct {
	Mode    uint32 `json:"mode"`
	Size    int64  `json:"size"`
	Links   uint64 `json:"links"`
	Changed int64  `json:"changed"`
	Text    string `json:"text"`
}

const showProgram = `
answer = {}
def show(path):
    try:
        s = os.lstat(path)
    except FileNotFoundError:
        return
    text = ""
    if stat.S_ISDIR(s.st_mode):
        for name in os.listdir(path):
            show(path + "/" + name)
        for name in "abcdef":
            show(path + "/" + name)
    elif stat.S_ISLNK(s.st_mode):
        text = os.readlink(path)
    else:
        with open(path) as f:
            text = f.read()
    answer[path] = {"mode": s.st_mode, "size": s.st_size if not stat.S_ISDIR(s.st_mode) else 0, "links": s.st_nlink, "changed": s.st_mtime_ns, "text": text}
show(".")
`

// shown is what the host has.
func (a *asked) shown() map[string]entry {
	all := map[string]entry{}
	err := filepath.WalkDir(a.dir, func(path string, _ fs.DirEntry, err error) error {
		var s syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &s)
		}
		if err != nil {
			return err
		}
		e := entry{Mode: s.Mode, Links: uint64(s.Nlink), Changed: s.Mtim.Nano()}
		switch s.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			e.Size, e.Text = s.Size, string(text)
		case syscall.S_IFLNK:
			e.Size = s.Size
			if e.Text, err = os.Readlink(path); err != nil {
				return err
			}
		}
		name, _ := filepath.Rel(a.dir, path)
		if name != "." {
			name = "./" + name
		}
		all[name] = e
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

// compareShown has both sides say what there is.
func (a *asked) compareShown(step string, times bool) {
	a.t.Helper()
	var box map[string]entry
	if text := a.ask(showProgram); json.Unmarshal([]byte(text), &box) != nil {
		a.t.Fatalf("%s: %s", step, text)
	}
	host := a.shown()
	for path := range box {
		if _, ok := host[path]; !ok {
			a.t.Fatalf("%s: only the box has %s", step, path)
		}
	}
	for path, want := range host {
		got, ok := box[path]
		if !times {
			got.Changed, want.Changed = 0, 0
		}
		if !ok || got != want {
			a.t.Fatalf("%s: of %s the box says %+v, the host %+v", step, path, got, want)
		}
	}
}

// What one side does both see, whatever it is.
func TestServerAndBoxSeeTheSameFiles(t *testing.T) {
	a := newAsked(t)
	r := rand.New(rand.NewPCG(7, uint64(time.Now().Unix())))
	name := func() string {
		parts := make([]string, 1+r.IntN(3))
		for n := range parts {
			parts[n] = string("abcdef"[r.IntN(6)])
		}
		return strings.Join(parts, "/")
	}
	a.ask("os.umask(0)")
	for step := range 250 {
		p, q, text := name(), name(), strings.Repeat("x", r.IntN(9000))
		op := r.IntN(10)
		if r.IntN(2) == 0 {
			a.change(func() error {
				a.outside(op, a.path(p), a.path(q), text)
				return nil
			})
			a.compareShown(fmt.Sprintf("step %d: outside %d %s %s", step, op, p, q), true)
			continue
		}
		code := fmt.Sprintf(insideProgram, op, p, q, text)
		if out := a.ask(code); out != "null" {
			t.Fatal(out)
		}
		a.compareShown(fmt.Sprintf("step %d: inside %d %s %s", step, op, p, q), false)
	}
}

// outside makes a change that may not be possible.
func (a *asked) outside(op int, p, q, text string) {
	switch op {
	case 0, 1:
		temp := a.path("new")
		if os.WriteFile(temp, []byte(text), 0o666) == nil && (os.Chmod(temp, 0o666) != nil || os.Rename(temp, p) != nil) {
			os.Remove(temp)
		}
	case 2:
		os.Remove(p)
	case 3:
		os.RemoveAll(p)
	case 4:
		if os.Mkdir(p, 0o777) == nil {
			os.Chmod(p, 0o777)
		}
	case 5:
		os.Rename(p, q)
	case 6:
		os.Symlink("b", p)
	case 7:
		os.Link(p, q)
	case 8:
		os.Chmod(p, 0o755)
	case 9:
		if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() {
			os.Truncate(p, int64(len(text)))
		}
	}
}

const insideProgram = `
op, p, q, text = %d, %q, %q, %q
try:
    if op == 0:
        with open(p, "w") as f: f.write(text)
    elif op == 1:
        with open(p, "a") as f: f.write(text)
    elif op == 2: os.remove(p)
    elif op == 3:
        import shutil
        shutil.rmtree(p)
    elif op == 4: os.mkdir(p)
    elif op == 5: os.rename(p, q)
    elif op == 6: os.symlink("b", p)
    elif op == 7: os.link(p, q)
    elif op == 8: os.chmod(p, 0o755)
    elif op == 9: os.truncate(p, len(text))
except OSError:
    pass
`

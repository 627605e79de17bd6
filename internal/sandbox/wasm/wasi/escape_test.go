package wasi

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// link plants a link on the host's side, where everything is allowed.
func (w *world) link(target, name string) {
	w.t.Helper()
	if err := os.Symlink(target, filepath.Join(w.host, name)); err != nil {
		w.t.Skip("links cannot be made here:", err)
	}
}

// outside is what lies beside the mounted folder.
func (w *world) outside() map[string]string {
	all := hostFiles(w.t, filepath.Dir(w.host))
	for name := range all {
		if name == "workspace" || strings.HasPrefix(name, "workspace"+string(filepath.Separator)) {
			delete(all, name)
		}
	}
	return all
}

func TestNoLinkLeavesTheMount(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	beside := filepath.Dir(w.host)
	w.link(filepath.Join(beside, "secret"), "absolute")
	w.link("../secret", "relative")
	w.link("..", "up")
	w.link("up", "chain")
	w.link("../made", "dangling")
	w.link(filepath.Join(beside, "made"), "dangling-absolute")
	w.link("loop", "loop")
	must(t, os.Mkdir(filepath.Join(w.host, "sub"), 0o755))
	w.link("../../secret", "sub/deep")
	w.link("/", "root")
	for _, target := range []string{"../secret", "../../secret", "..", "up/.."} {
		w.ok(w.call("path_symlink", target, rootFD, "/workspace/planted-"+strings.ReplaceAll(target, "/", "-")))
	}
	w.create("/workspace/f", "mine")
	before := w.outside()
	for _, name := range []string{
		"absolute", "relative", "up/secret", "chain/secret", "sub/deep", "dangling", "dangling-absolute", "up/made", "chain/made", "loop", "loop/x",
		"root/etc/passwd", "planted-..-secret", "planted-..-..-secret", "planted-../secret", "planted-up-..", "planted-up-../secret",
	} {
		p := "/workspace/" + name
		w.denied(p, "path_filestat_get", rootFD, follow, p, out)
		w.denied(p, "path_filestat_set_times", rootFD, follow, p, 0, 0, 5)
		for _, oflags := range []int{0, openCreate, openCreate | openTruncate, openTruncate, openFolder} {
			w.denied(p, "path_open", rootFD, follow, p, oflags, both, both, 0, out)
		}
		if strings.Contains(name, "/") && name != "sub/deep" { // which is itself inside
			w.denied(p, "path_create_directory", rootFD, p)
			w.denied(p, "path_unlink_file", rootFD, p)
			w.denied(p, "path_remove_directory", rootFD, p)
			w.denied(p, "path_rename", rootFD, "/workspace/f", rootFD, p)
			w.denied(p, "path_rename", rootFD, p, rootFD, "/workspace/stolen")
			w.denied(p, "path_link", rootFD, 0, p, rootFD, "/workspace/stolen")
			w.denied(p, "path_link", rootFD, 0, "/workspace/f", rootFD, p)
			w.denied(p, "path_symlink", "f", rootFD, p)
		}
		w.denied(p, "path_open", rootFD, follow, p, openCreate|openExclusive, both, both, 0, out)
	}
	for name, content := range w.outside() {
		if before[name] != content {
			t.Errorf("%s outside is now %q", name, content)
		}
	}
	for _, name := range []string{"absolute", "dangling-absolute", "root"} {
		if e := w.call("path_readlink", rootFD, "/workspace/"+name, buffer, 100, out); e != eperm {
			t.Errorf("reading where %s leads to: errno %d", name, e)
		}
	}
}

// denied calls what has to fail.
func (w *world) denied(path, name string, params ...any) {
	w.t.Helper()
	if e := w.call(name, params...); e == success {
		w.t.Errorf("%s of %s worked (%v)", name, path, params)
	}
}

// TestLinksThatAreSwappedLeaveNoHole changes a name between a file, a folder
// and a link out of the mount, while another interpreter uses it.
func TestLinksThatAreSwappedLeaveNoHole(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	must(t, os.Mkdir(filepath.Join(filepath.Dir(w.host), "folder"), 0o755))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(w.host), "folder", "f"), []byte(secret), 0o644))
	before := w.outside()
	must(t, os.Mkdir(filepath.Join(w.host, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(w.host, "d", "f"), []byte("mine"), 0o644))
	must(t, os.WriteFile(filepath.Join(w.host, "file"), []byte("mine"), 0o644))
	w.link("../folder", "out")
	w.link("../secret", "leaf")
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Add(1)
	go func() {
		defer swapper.Done()
		in := func(name string) string { return filepath.Join(w.host, name) }
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, x := range [][2]string{{"d", "d2"}, {"out", "d"}, {"d", "out"}, {"d2", "d"}, {"file", "file2"}, {"leaf", "file"}, {"file", "leaf"}, {"file2", "file"}} {
				_ = os.Rename(in(x[0]), in(x[1])) // the guest may have taken it away
			}
		}
	}()
	for range 2000 {
		for _, p := range []string{"/workspace/d/f", "/workspace/file"} {
			if fd, e := w.open(p, openCreate, both, 0); e == success {
				if s, e := w.read(fd, 100); e == success && strings.Contains(s, secret) {
					t.Error("the secret was read")
				}
				_, _ = w.write(fd, "overwritten")
				w.close(fd)
			}
			w.call("path_filestat_set_times", rootFD, follow, p, 1, 1, 5)
		}
		w.call("path_open", rootFD, follow, "/workspace/d/new", openCreate|openTruncate, both, both, 0, out)
		w.call("fd_close", w.u32at(out))
		w.call("path_create_directory", rootFD, "/workspace/d/sub")
		w.call("path_unlink_file", rootFD, "/workspace/d/new")
	}
	close(done)
	swapper.Wait()
	after := w.outside()
	if len(after) != len(before) {
		t.Errorf("outside there are now %v", after)
	}
	for name, content := range after {
		if before[name] != content {
			t.Errorf("%s outside is now %q", name, content)
		}
	}
}

func TestSeveralSystemsShareAFolder(t *testing.T) {
	const rounds = 150
	w := newWorld(t, 4<<20)
	var all sync.WaitGroup
	for i := range 4 {
		g := w.again(t)
		all.Add(1)
		go func() {
			defer all.Done()
			own := "/workspace/own" + string(rune('a'+i))
			line := strings.Repeat(string(rune('a'+i)), 9) + "\n"
			log, e := g.open("/app/log", openCreate, writing, flagAppend)
			if e != success {
				t.Errorf("errno %d", e)
				return
			}
			for range rounds {
				if n, e := g.write(log, line); n != len(line) || e != success {
					t.Errorf("%d bytes, errno %d", n, e)
				}
				fd, e := g.open(own, openCreate|openTruncate, both, 0)
				if e != success {
					t.Errorf("errno %d", e)
					return
				}
				_, _ = g.write(fd, strings.Repeat("x", 10_000))
				g.call("fd_filestat_set_size", fd, 100)
				g.call("path_unlink_file", rootFD, own)
				g.call("path_create_directory", rootFD, "/workspace/shared")
				g.call("path_rename", rootFD, "/workspace/shared", rootFD, "/workspace/shared2")
				g.call("path_remove_directory", rootFD, "/workspace/shared2")
				g.call("fd_close", fd)
			}
		}()
	}
	all.Wait()
	lines := strings.Split(strings.TrimSuffix(w.content("/workspace/log"), "\n"), "\n")
	if len(lines) != 4*rounds {
		t.Errorf("%d lines were appended", len(lines))
	}
	for _, line := range lines {
		if len(line) != 9 || strings.Trim(line, line[:1]) != "" {
			t.Fatalf("the line %q is mixed up", line)
		}
	}
	used := w.dir.used
	w.dir.countLocked()
	if used < w.dir.used {
		t.Errorf("%d bytes were counted where there are %d", used, w.dir.used)
	}
}

package wasi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// slowly makes w's folder one without a descriptor, as it is where the kernel
// gives none: everything is left to os.Root.
func (w *world) slowly() *world {
	w.dir.top.close()
	return w
}

// TestBothWaysAnswerAlike makes the same calls on two folders that are alike,
// once through the descriptors and once by os.Root alone.
func TestBothWaysAnswerAlike(t *testing.T) {
	worlds := []*world{newWorld(t, 1<<20), newWorld(t, 1<<20).slowly()}
	for _, w := range worlds {
		must(t, os.MkdirAll(filepath.Join(w.host, "d/sub/deep"), 0o755))
		for _, name := range []string{"f", "d/f", "d/sub/f", "d/sub/deep/f", "d/\xff\xfe"} {
			must(t, os.WriteFile(filepath.Join(w.host, name), []byte("content of "+name), 0o644))
		}
		must(t, unix.Mkfifo(filepath.Join(w.host, "d/fifo"), 0o644))
		for name, target := range map[string]string{
			"to-f": "f", "to-d": "d", "d/to-sub": "sub", "d/to-f": "../f", "d/up": "..", "d/out": "../../secret", "d/gone": "nothing", "d/loop": "loop",
			"far": "../..", "chain": "to-d", "absolute": "/", "proc": "/proc/self/root",
		} {
			w.link(target, name)
		}
	}
	folders := []string{"", "d/", "d/sub/deep/", "to-d/", "d/to-sub/", "d/up/", "far/", "chain/to-sub/", "f/", "none/", "d/fifo/", "absolute/", "proc/", "d/../d/", "d/loop/"}
	names := []string{"f", "d", "to-f", "to-d", "gone", "out", "loop", "fifo", "new", "sub", "\xff\xfe", ".", "..", strings.Repeat("x", 255)}
	same := func(what string, answer func(w *world) string) {
		t.Helper()
		if fast, slow := answer(worlds[0]), answer(worlds[1]); fast != slow {
			t.Errorf("%s: %s through the descriptors, %s by os.Root", what, fast, slow)
		}
	}
	for _, folder := range folders {
		for _, name := range names {
			p := "/workspace/" + folder + name
			for lookup := range 2 {
				same("stat "+p, func(w *world) string {
					e := w.call("path_filestat_get", rootFD, lookup, p, out)
					return fmt.Sprint(e, e == success && w.seen().kind == typeRegular, w.seen().kind, w.seen().links)
				})
				for oflags := range openAll + 1 {
					for _, rights := range []int{reading, both} {
						same(fmt.Sprint("open ", p, lookup, oflags, rights), func(w *world) string {
							e := w.call("path_open", rootFD, lookup, p, oflags, rights, rights, 0, out)
							if e != success {
								return fmt.Sprint(e)
							}
							defer w.close(w.u32at(out))
							fd := w.u32at(out)
							s, e := w.read(fd, 100)
							_, wrote := w.write(fd, "more")
							return fmt.Sprint(s, e, wrote)
						})
					}
				}
			}
			same("list "+p, func(w *world) string {
				if _, e := w.open(p, openFolder, both, 0); e != success {
					return fmt.Sprint(e)
				}
				w.close(w.u32at(out))
				return fmt.Sprintf("%q", w.names(p, 64<<10))
			})
			for _, call := range [][]any{
				{"path_create_directory", rootFD, p + "-new"}, {"path_rename", rootFD, p, rootFD, "/workspace/d/moved"},
				{"path_rename", rootFD, "/workspace/d/moved", rootFD, p}, {"path_rename", rootFD, p, rootFD, p + "-new"},
				{"path_rename", rootFD, p + "-new", rootFD, p}, {"path_remove_directory", rootFD, p + "-new"},
				{"path_link", rootFD, 0, p, rootFD, p + "-hard"}, {"path_unlink_file", rootFD, p + "-hard"},
				{"path_symlink", "f", rootFD, p + "-soft"}, {"path_unlink_file", rootFD, p + "-soft"}, {"path_readlink", rootFD, p, buffer, 100, out},
				{"path_create_directory", rootFD, p}, {"path_remove_directory", rootFD, p},
			} {
				same(fmt.Sprint(call), func(w *world) string { return fmt.Sprint(w.call(call[0].(string), call[1:]...)) })
			}
			same("what lies there after "+p, func(w *world) string {
				all := hostFiles(t, filepath.Dir(w.host))
				if all["secret"] == "" || !strings.HasSuffix(all["secret"], secret) {
					t.Fatalf("%s: the secret is %q", p, all["secret"])
				}
				return fmt.Sprint(all)
			})
			same("what is counted after "+p, func(w *world) string { return fmt.Sprint(w.dir.used, w.dir.stale) })
		}
	}
	for _, name := range []string{"f", "d", "to-f", "d/fifo", "d/sub"} {
		same("unlink "+name, func(w *world) string { return fmt.Sprint(w.call("path_unlink_file", rootFD, "/workspace/"+name)) })
	}
}

// TestTheKernelFollowsNoLink asks for what a spot asks for, with a name that
// has become a link since it was looked at.
func TestTheKernelFollowsNoLink(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	must(t, os.MkdirAll(filepath.Join(w.host, "d/sub"), 0o755))
	w.link("../secret", "leaf")
	w.link("..", "up")
	w.link("d", "to-d")
	w.link("/proc/self/root", "magic")
	top, err := os.Open(w.host)
	must(t, err)
	defer top.Close()
	fd := int(top.Fd())
	for _, name := range []string{"up", "to-d", "to-d/sub", "d/../to-d", "magic", "up/workspace", "..", "d/../..", "/", "leaf", "none"} {
		if got := openBelow(fd, name); got >= 0 {
			t.Errorf("the folder %s was opened", name)
			unix.Close(got)
		}
	}
	for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_RDWR | unix.O_CREAT, unix.O_WRONLY | unix.O_CREAT | unix.O_NONBLOCK} {
		for _, name := range []string{"leaf", "up", "magic"} {
			if got, err := openAt(fd, name, flags); !errors.Is(err, unix.ELOOP) {
				t.Errorf("opening %s: %d, %v", name, got, err)
			}
		}
	}
	if s, err := statBelow(fd, "leaf"); err != nil || s.kind != typeSymlink {
		t.Errorf("%+v, %v", s, err)
	}
	for _, name := range []string{"..", "../secret", "d/..", "d/../f", "", "/", "a//b", "./d", "d/."} {
		at := w.dir.at(name)
		if at.folder >= 0 {
			t.Errorf("%q is not left to os.Root", name)
		}
		at.close()
	}
}

// TestAFolderIsSeenAsItIsNow replaces a folder, from outside, between calls.
func TestAFolderIsSeenAsItIsNow(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	in := func(name string) string { return filepath.Join(w.host, name) }
	for _, name := range []string{"a", "b"} {
		must(t, os.Mkdir(in(name), 0o755))
		must(t, os.WriteFile(in(name+"/f"), []byte("of "+name), 0o644))
		must(t, os.WriteFile(in(name+"/only-"+name), nil, 0o644))
	}
	if got := w.content("/workspace/a/f"); got != "of a" {
		t.Errorf("%q", got)
	}
	must(t, os.Rename(in("a"), filepath.Join(w.host, "..", "away")))
	must(t, os.Rename(in("b"), in("a")))
	if got := w.content("/workspace/a/f"); got != "of b" {
		t.Errorf("%q", got)
	}
	if got := w.names("/workspace/a", 4096); !slices.Equal(got, []string{".", "..", "f", "only-b"}) {
		t.Errorf("%q", got)
	}
	w.create("/workspace/a/new", "x")
	if _, err := os.Stat(filepath.Join(w.host, "..", "away", "new")); err == nil {
		t.Error("it was made in the folder that is outside now")
	}
	must(t, os.Rename(in("a"), in("b")))
	w.link("../away", "a")
	if _, e := w.stat("/workspace/a/f"); e == success {
		t.Error("a link out of the folder was followed")
	}
}

func TestADirThatIsClosedDoesNothing(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	w.create("/workspace/f", "x")
	before := openDescriptors(t)
	for _, e := range []errno{
		w.call("path_filestat_get", rootFD, 0, "/workspace/f", out), w.call("path_filestat_get", rootFD, 0, "/workspace/d/f", out),
		w.call("path_rename", rootFD, "/workspace/f", rootFD, "/workspace/g"), w.call("path_create_directory", rootFD, "/workspace/d"),
		w.call("path_rename", rootFD, "/workspace/g", rootFD, "/workspace/d/g"), w.call("path_rename", rootFD, "/workspace/d/g", rootFD, "/workspace/d/h"),
		w.call("path_rename", rootFD, "/workspace/d/h", rootFD, "/workspace/g"), w.call("path_unlink_file", rootFD, "/workspace/g"),
		w.call("path_remove_directory", rootFD, "/workspace/d"),
	} {
		if e != success && e != enoent {
			t.Errorf("errno %d", e)
		}
	}
	w.names("/workspace", 4096)
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors are open, where there were %d", after, before)
	}
	must(t, w.dir.Close())
	w.want(w.call("path_filestat_get", rootFD, 0, "/workspace/f", out), ebadf)
	w.want(w.call("path_create_directory", rootFD, "/workspace/d"), ebadf)
	_ = w.dir.Close()
}

func openDescriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

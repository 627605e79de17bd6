package wasi

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestArgumentsAndEnvironment(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	for _, x := range []struct {
		name string
		list []string
	}{{"args", g.config.Args}, {"environ", g.config.Env}} {
		g.ok(g.call(x.name+"_sizes_get", out, out+4))
		if n := g.u32at(out); n != len(x.list) {
			t.Fatalf("%s: %d", x.name, n)
		}
		size := g.u32at(out + 4)
		g.ok(g.call(x.name+"_get", out, buffer))
		if got, want := string(g.memory[buffer:buffer+size]), strings.Join(x.list, "\x00")+"\x00"; got != want {
			t.Errorf("%s: %q, not %q", x.name, got, want)
		}
		if second := g.u32at(out + 4); second != buffer+len(x.list[0])+1 {
			t.Errorf("%s: the second lies at %d", x.name, second)
		}
		g.want(g.call(x.name+"_get", out, len(g.memory)-1), efault)
		g.want(g.call(x.name+"_get", len(g.memory)-4, buffer), efault)
	}
}

func TestTheRootIsTheOnlyPreopen(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.ok(g.call("fd_prestat_get", rootFD, out))
	if g.memory[out] != 0 || g.u32at(out+4) != 1 {
		t.Errorf("prestat %v", g.memory[out:out+8])
	}
	g.ok(g.call("fd_prestat_dir_name", rootFD, buffer, 1))
	if g.memory[buffer] != '/' {
		t.Error("it is not called /")
	}
	g.want(g.call("fd_prestat_dir_name", rootFD, buffer, 0), enametoolong)
	for _, fd := range []int{0, 4, 255, 256, math.MaxUint32} {
		g.want(g.call("fd_prestat_get", fd, out), ebadf)
		g.want(g.call("fd_prestat_dir_name", fd, buffer, 1), ebadf)
	}
	g.want(g.call("fd_close", rootFD), eperm)
	g.want(g.call("fd_renumber", 1, rootFD), eperm)
	g.want(g.call("fd_renumber", rootFD, 9), eperm)
}

func TestFilesAreWrittenAndRead(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	g := w.guest
	fd := g.mustOpen("workspace/f", openCreate|openExclusive, both)
	n, e := g.write(fd, "hello world")
	g.ok(e)
	if n != 11 {
		t.Errorf("%d bytes", n)
	}
	g.ok(g.call("fd_tell", fd, out))
	if g.u64at(out) != 11 {
		t.Errorf("at %d", g.u64at(out))
	}
	seek := func(by int64, whence int, want uint64) {
		t.Helper()
		g.ok(g.call("fd_seek", fd, uint64(by), whence, out))
		if g.u64at(out) != want {
			t.Errorf("at %d, not %d", g.u64at(out), want)
		}
	}
	seek(6, 0, 6)
	seek(-1, 1, 5)
	seek(-5, 2, 6)
	if s, e := g.read(fd, 100); s != "world" || e != success {
		t.Errorf("%q, %d", s, e)
	}
	if s, e := g.read(fd, 100); s != "" || e != success {
		t.Errorf("at the end: %q, %d", s, e)
	}
	copy(g.memory[buffer:], "HE")
	list, count := g.pieces(buffer, 2)
	g.ok(g.call("fd_pwrite", fd, list, count, 0, out))
	list, count = g.pieces(buffer, 5)
	g.ok(g.call("fd_pread", fd, list, count, 0, out))
	if got := string(g.memory[buffer : buffer+5]); got != "HEllo" {
		t.Errorf("%q", got)
	}
	g.ok(g.call("fd_sync", fd))
	g.ok(g.call("fd_datasync", fd))
	g.ok(g.call("fd_advise", fd, 0, 0, 0))
	g.ok(g.call("fd_allocate", fd, 0, 20))
	g.ok(g.call("fd_filestat_get", fd, out))
	if s := g.seen(); s.size != 20 || s.kind != typeRegular || s.links != 1 {
		t.Errorf("%+v", s)
	}
	g.ok(g.call("fd_allocate", fd, 0, 3)) // makes nothing shorter
	g.ok(g.call("fd_filestat_set_size", fd, 4))
	g.close(fd)
	if b, err := os.ReadFile(filepath.Join(w.host, "f")); err != nil || string(b) != "HEll" {
		t.Errorf("the host sees %q, %v", b, err)
	}
	if _, e := g.open("workspace/f", openCreate|openExclusive, both, 0); e != eexist {
		t.Errorf("making it again: %d", e)
	}
}

func TestAppendingGoesToTheEnd(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/log", "one\n")
	fd, e := g.open("/workspace/log", 0, writing, flagAppend)
	g.ok(e)
	g.create("/workspace/log", "a longer first line\n")
	_, e = g.write(fd, "two\n")
	g.ok(e)
	if got := g.content("/workspace/log"); got != "a longer first line\ntwo\n" {
		t.Errorf("%q", got)
	}
	g.ok(g.call("fd_fdstat_set_flags", fd, 0))
	g.ok(g.call("fd_seek", fd, 0, 0, out))
	_, e = g.write(fd, "A")
	g.ok(e)
	if got := g.content("/workspace/log"); got[0] != 'A' {
		t.Errorf("%q", got)
	}
	g.want(g.call("fd_fdstat_set_flags", fd, flagSync), enotsup)
	g.want(g.call("fd_fdstat_set_flags", fd, 1<<10), einval)
}

func TestSeveralPiecesAreOneTransfer(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	fd := g.mustOpen("/workspace/f", openCreate, both)
	copy(g.memory[buffer:], "abcdef")
	for i, piece := range []int{buffer, 2, buffer + 2, 0, buffer + 2, 4} {
		g.memory[512+4*i], g.memory[512+4*i+1], g.memory[512+4*i+2] = byte(piece), byte(piece>>8), byte(piece>>16)
	}
	g.ok(g.call("fd_write", fd, 512, 3, out))
	if n := g.u32at(out); n != 6 {
		t.Errorf("%d bytes written", n)
	}
	g.ok(g.call("fd_seek", fd, 0, 0, out))
	clear(g.memory[buffer : buffer+6])
	g.ok(g.call("fd_read", fd, 512, 3, out))
	if got := string(g.memory[buffer : buffer+6]); got != "abcdef" || g.u32at(out) != 6 {
		t.Errorf("%q, %d", got, g.u32at(out))
	}
}

func TestFoldersAndNames(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.ok(g.call("path_create_directory", rootFD, "workspace/sub/"))
	g.want(g.call("path_create_directory", rootFD, "workspace/sub"), eexist)
	g.want(g.call("path_create_directory", rootFD, "workspace/no/sub"), enoent)
	sub := g.mustOpen("/workspace/sub", openFolder, both)
	g.ok(g.call("path_open", sub, follow, "f", openCreate, writing, writing, 0, out))
	g.close(g.u32at(out))
	g.want(g.call("path_remove_directory", rootFD, "workspace/sub"), enotempty)
	g.want(g.call("path_remove_directory", rootFD, "workspace/sub/f"), enotdir)
	g.want(g.call("path_unlink_file", rootFD, "workspace/sub"), eisdir)
	g.want(g.call("path_unlink_file", rootFD, "workspace/sub/f/"), enotdir)
	g.ok(g.call("path_link", sub, 0, "f", rootFD, "workspace/other"))
	a, _ := g.stat("/workspace/sub/f")
	b, e := g.stat("/workspace/other")
	g.ok(e)
	if a.inode != b.inode || a.links != 2 {
		t.Errorf("%+v and %+v", a, b)
	}
	g.ok(g.call("path_rename", sub, "f", sub, "g"))
	g.ok(g.call("path_rename", rootFD, "workspace/sub", rootFD, "app/moved"))
	g.ok(g.call("path_unlink_file", sub, "g")) // the open folder followed its name
	g.ok(g.call("path_remove_directory", rootFD, "workspace/moved"))
	g.close(sub)
	if got := g.names("/workspace", 4096); !slices.Equal(got, []string{".", "..", "other"}) {
		t.Errorf("left: %q", got)
	}
}

func TestRenamingReplacesAsPosixHasIt(t *testing.T) {
	for _, x := range []struct {
		name, from, to string
		want           errno
	}{
		{"a file over a file", "f", "g", success},
		{"a file over a folder", "f", "empty", eisdir},
		{"a folder over a file", "empty", "f", enotdir},
		{"a folder over an empty folder", "full", "empty", success},
		{"a folder over a full folder", "empty", "full", enotempty},
		{"a folder into itself", "full", "full/x", einval},
		{"a file over itself", "f", "f", success},
		{"a name that is not there", "none", "g", enoent},
		{"a file to a name that only fits a folder", "f", "new/", enotdir},
	} {
		t.Run(x.name, func(t *testing.T) {
			g := newWorld(t, noSpaceLimit).guest
			g.create("workspace/f", "f")
			g.create("workspace/g", "g")
			g.ok(g.call("path_create_directory", rootFD, "workspace/empty"))
			g.ok(g.call("path_create_directory", rootFD, "workspace/full"))
			g.create("workspace/full/h", "h")
			g.want(g.call("path_rename", rootFD, "workspace/"+x.from, rootFD, "workspace/"+x.to), x.want)
		})
	}
}

func TestMountsAndWhatLiesAboveThem(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	for path, want := range map[string][]string{
		"/":                {".", "..", "app", "dev", "lib", "ro", "workspace"},
		"/lib":             {".", "..", "python"},
		"/lib/python":      {".", "..", "json", "os.py"},
		"/lib/python/json": {".", "..", "decoder.py"},
		"/ro":              {".", "..", "fixed"},
	} {
		if got := g.names(path, 4096); !slices.Equal(got, want) {
			t.Errorf("%s: %q", path, got)
		}
		if s, e := g.stat(path); e != success || s.kind != typeFolder {
			t.Errorf("%s: %+v, %d", path, s, e)
		}
	}
	for _, x := range []struct {
		path         string
		make, create errno
	}{
		{"/x", erofs, erofs},
		{"/lib/x", erofs, erofs},
		{"/lib", eexist, eisdir},
		{"/workspace", eexist, eisdir},
		{"/lib/python/x", erofs, erofs},
		{"/lib/python/os.py", eexist, erofs},
		{"/lib/python/os.py/x", enotdir, enotdir},
		{"/ro/x", erofs, erofs},
		{"/ro/fixed", eexist, erofs},
	} {
		g.want(g.call("path_create_directory", rootFD, x.path), x.make)
		if _, e := g.open(x.path, openCreate, writing, 0); e != x.create {
			t.Errorf("opening %s: %d, not %d", x.path, e, x.create)
		}
	}
	for path, want := range map[string]errno{"/workspace": ebusy, "/lib": erofs, "/lib/python/json": erofs, "/none": enoent, "/ro": ebusy} {
		g.want(g.call("path_remove_directory", rootFD, path), want)
	}
	g.want(g.call("path_unlink_file", rootFD, "/ro/fixed"), erofs)
	g.want(g.call("path_unlink_file", rootFD, "/lib/python/os.py"), erofs)
	g.create("/workspace/f", "")
	g.want(g.call("path_rename", rootFD, "/workspace/f", rootFD, "/ro/f"), exdev)
	g.want(g.call("path_rename", rootFD, "/ro/fixed", rootFD, "/ro/f"), erofs)
	g.want(g.call("path_rename", rootFD, "/lib/python/os.py", rootFD, "/workspace/os.py"), erofs)
	g.want(g.call("path_link", rootFD, 0, "/ro/fixed", rootFD, "/workspace/hard"), exdev)
	g.want(g.call("path_link", rootFD, 0, "/workspace/f", rootFD, "/ro/hard"), exdev)
	g.want(g.call("path_filestat_set_times", rootFD, follow, "/ro/fixed", 0, 0, 5), erofs)
	g.want(g.call("path_filestat_set_times", rootFD, follow, "/lib", 0, 0, 5), erofs)
	if got := g.content("/ro/fixed"); got != "fixed" {
		t.Errorf("%q", got)
	}
}

func TestArchivesAreReadAtAnyOffset(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	fd := g.mustOpen("/lib/python/json/decoder.py", 0, reading)
	g.ok(g.call("fd_seek", fd, uint64(math.MaxUint64-4), 2, out)) // -5
	if s, e := g.read(fd, 100); s != "pass\n" || e != success {
		t.Errorf("%q, %d", s, e)
	}
	list, n := g.pieces(buffer, 5)
	g.ok(g.call("fd_pread", fd, list, n, 0, out))
	if got := string(g.memory[buffer : buffer+5]); got != "class" {
		t.Errorf("%q", got)
	}
	g.ok(g.call("fd_pread", fd, list, n, 1<<40, out))
	if g.u32at(out) != 0 {
		t.Error("something was read far behind the end")
	}
	if _, e := g.write(fd, "x"); e != ebadf {
		t.Errorf("writing: %d", e)
	}
	g.ok(g.call("fd_filestat_get", fd, out))
	open := g.seen()
	if named, _ := g.stat("/lib/python/json/decoder.py"); named != open || open.size != 24 {
		t.Errorf("%+v and %+v", named, open)
	}
}

func TestAliasesAreTheSameFolder(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "same")
	if got := g.content("/app/f"); got != "same" {
		t.Errorf("%q", got)
	}
	a, _ := g.stat("/workspace/f")
	b, _ := g.stat("/app/f")
	if a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	other, _ := g.stat("/ro/fixed")
	if other.device == a.device {
		t.Error("two mounts have one device")
	}
	fd := g.mustOpen("/app/f", 0, reading)
	g.ok(g.call("fd_filestat_get", fd, out))
	if got := g.seen(); got != a {
		t.Errorf("open: %+v, by name: %+v", got, a)
	}
	g.ok(g.call("path_link", rootFD, 0, "/app/f", rootFD, "/workspace/hard"))
}

func TestSymlinks(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "content")
	g.ok(g.call("path_create_directory", rootFD, "/workspace/sub"))
	for _, x := range []struct {
		name, target, link, text string
		want                     errno
	}{
		{"a relative one is kept", "../f", "/workspace/sub/rel", "../f", success},
		{"an absolute one in the same mount becomes relative", "/workspace/f", "/workspace/sub/abs", "../f", success},
		{"an absolute one by an alias too", "/app/./sub/../f", "/workspace/alias", "f", success},
		{"one to the mount itself", "/workspace", "/workspace/sub/top", "..", success},
		{"one into another mount is refused", "/lib/python/os.py", "/workspace/other", "", eperm},
		{"one to nothing of the guest's is refused", "/etc/passwd", "/workspace/passwd", "", eperm},
		{"one in a place that is taken is refused", "x", "/workspace/f", "", eexist},
		{"one in a read-only place is refused", "x", "/ro/link", "", erofs},
		{"one without a target is refused", "", "/workspace/empty", "", enoent},
		{"one whose name ends in a slash is refused", "x", "/workspace/slash/", "", enoent},
	} {
		t.Run(x.name, func(t *testing.T) {
			g.t = t
			g.want(g.call("path_symlink", x.target, rootFD, x.link), x.want)
			if x.want != success {
				return
			}
			g.ok(g.call("path_readlink", rootFD, x.link, buffer, 100, out))
			if got := string(g.memory[buffer : buffer+g.u32at(out)]); got != x.text {
				t.Errorf("it leads to %q, not %q", got, x.text)
			}
			if _, e := g.stat(x.link); e != success {
				t.Errorf("following it: %d", e)
			}
			g.ok(g.call("path_filestat_get", rootFD, 0, x.link, out))
			if kind := g.seen().kind; kind != typeSymlink {
				t.Errorf("it is of type %d", kind)
			}
			g.want(g.call("path_open", rootFD, 0, x.link, 0, reading, reading, 0, out), eloop)
		})
	}
	g.t = t
	g.ok(g.call("path_readlink", rootFD, "/workspace/sub/abs", buffer, 2, out))
	if got := string(g.memory[buffer : buffer+g.u32at(out)]); got != ".." {
		t.Errorf("cut: %q", got)
	}
	for path, want := range map[string]errno{"/workspace/f": einval, "/lib": einval, "/lib/python/os.py": einval, "/none": enoent} {
		g.want(g.call("path_readlink", rootFD, path, buffer, 100, out), want)
	}
}

func TestTimesAreSet(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "")
	const a, m = 1_000_000_000_000_000_000, 1_100_000_000_000_000_000
	check := func(wantA, wantM uint64) {
		t.Helper()
		if s, e := g.stat("/workspace/f"); e != success || s.accessed != wantA || s.modified != wantM {
			t.Errorf("%+v, %d", s, e)
		}
	}
	g.ok(g.call("path_filestat_set_times", rootFD, follow, "/workspace/f", a, m, 5))
	check(a, m)
	g.ok(g.call("path_filestat_set_times", rootFD, follow, "/workspace/f", 7, m+2000, 4))
	check(a, m+2000)
	fd := g.mustOpen("/workspace/f", 0, both)
	g.ok(g.call("fd_filestat_set_times", fd, a+1000, 7, 1))
	check(a+1000, m+2000)
	g.ok(g.call("fd_filestat_set_times", fd, 0, 0, 2|8))
	if s, _ := g.stat("/workspace/f"); s.modified <= m+2000 || s.accessed <= a+1000 {
		t.Errorf("now is %+v", s)
	}
	folder := g.mustOpen("/workspace", openFolder, both)
	g.ok(g.call("fd_filestat_set_times", folder, a, m, 5))
	for _, flags := range []int{3, 12, 16, math.MaxUint32} {
		g.want(g.call("fd_filestat_set_times", fd, 0, 0, flags), einval)
		g.want(g.call("path_filestat_set_times", rootFD, follow, "/workspace/f", 0, 0, flags), einval)
	}
	g.want(g.call("fd_filestat_set_times", fd, uint64(math.MaxUint64), 0, 1), einval)
	g.want(g.call("fd_filestat_set_times", 1, 0, 0, 1), einval)
	g.want(g.call("fd_filestat_set_times", g.mustOpen("/ro/fixed", 0, reading), 0, 0, 1), erofs)
}

func TestListingKeepsItsCookies(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("file%02d", i)
		g.create("/workspace/"+name, "")
		want = append(want, name)
	}
	want = append([]string{".", ".."}, want...)
	for _, room := range []int{40, 100, 4096} {
		if got := g.names("/workspace", room); !slices.Equal(got, want) {
			t.Errorf("with room for %d bytes: %q", room, got)
		}
	}
	fd := g.mustOpen("/workspace", openFolder, both)
	first := func(cookie uint64) string {
		t.Helper()
		g.ok(g.call("fd_readdir", fd, buffer, 100, cookie, out))
		return string(g.memory[buffer+24 : buffer+24+g.u32at(buffer+16)])
	}
	if got := first(5); got != "file03" {
		t.Errorf("cookie 5 is %s", got)
	}
	g.create("/workspace/a", "")
	g.ok(g.call("path_unlink_file", rootFD, "/workspace/file03"))
	if got := first(5); got != "file03" {
		t.Errorf("after a change, cookie 5 is %s", got)
	}
	first(0)
	if got := first(5); got != "file02" {
		t.Errorf("after going back to the beginning, cookie 5 is %s", got)
	}
	g.ok(g.call("fd_readdir", fd, buffer, 100, 52, out))
	if g.u32at(out) != 0 {
		t.Error("there is something after the end")
	}
	g.want(g.call("fd_readdir", fd, buffer, 100, 53, out), einval)
	g.want(g.call("fd_readdir", fd, buffer, 100, uint64(math.MaxUint64), out), einval)
	g.want(g.call("fd_readdir", 1, buffer, 100, 0, out), enotdir)
	g.ok(g.call("fd_readdir", fd, buffer, 0, 0, out))
}

func TestListsHaveALimitTogether(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/file", "")
	fd := g.mustOpen("/workspace", openFolder, both)
	g.listed = maxListBytes
	g.want(g.call("fd_readdir", fd, buffer, 100, 0, out), enomem)
	g.listed = 0
	g.ok(g.call("fd_readdir", fd, buffer, 100, 0, out))
	if g.listed == 0 {
		t.Error("the list is not counted")
	}
	g.close(fd)
	if g.listed != 0 {
		t.Errorf("after closing, %d bytes are counted", g.listed)
	}
}

//go:build unix

package wasi

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSpecialFilesAreNotOpened(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	must(t, syscall.Mkfifo(filepath.Join(w.host, "fifo"), 0o666))
	t.Chdir(w.host) // a socket's path has to be short
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "socket")
	must(t, err)
	defer socket.Close()
	must(t, os.Symlink("fifo", "link"))
	for _, name := range []string{"fifo", "socket", "link"} {
		for _, rights := range []int{reading, writing, both, 0} {
			for _, oflags := range []int{0, openCreate, openTruncate} {
				if _, e := w.open("/workspace/"+name, oflags, rights, 0); e != eacces {
					t.Errorf("%s: errno %d", name, e)
				}
			}
		}
		if _, e := w.open("/workspace/"+name, openFolder, both, 0); e != enotdir {
			t.Errorf("%s as a folder: errno %d", name, e)
		}
		if s, e := w.stat("/workspace/" + name); e != success || s.kind == typeRegular {
			t.Errorf("%s: %+v, errno %d", name, s, e)
		}
		w.want(w.call("path_link", rootFD, 0, "/workspace/"+name, rootFD, "/workspace/hard-"+name), map[bool]errno{true: success, false: eperm}[name == "link"])
	}
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/fifo"))
}

func TestTheSpaceOfUnlinkedOpenFilesIsTaken(t *testing.T) {
	w := newWorld(t, 100_000)
	fd := w.mustOpen("/workspace/f", openCreate, both)
	w.ok(w.call("fd_filestat_set_size", fd, 80_000))
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/f"))
	other := w.mustOpen("/workspace/g", openCreate, both)
	w.want(w.call("fd_filestat_set_size", other, 50_000), enospc)
	w.want(w.call("fd_filestat_set_size", fd, 120_000), enospc)
	w.close(fd)
	w.ok(w.call("fd_filestat_set_size", other, 50_000))
}

func TestHardLinksCountTheContentOnce(t *testing.T) {
	w := newWorld(t, 100_000)
	w.create("/workspace/f", "")
	fd := w.mustOpen("/workspace/f", 0, both)
	w.ok(w.call("fd_filestat_set_size", fd, 60_000))
	links := 0
	for w.call("path_link", rootFD, 0, "/workspace/f", rootFD, "/workspace/l"+string(rune('a'+links))) == success {
		links++
	}
	if links != (100_000-60_000)/entryBytes {
		t.Errorf("%d links could be made", links)
	}
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/la"))
	w.want(w.call("fd_filestat_set_size", fd, 90_000), enospc)
	w.ok(w.call("fd_filestat_set_size", fd, 61_000))
}

func TestADyingFileIsSavedAsDead(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	gone := w.mustOpen("/workspace/gone", openCreate, both)
	replaced := w.mustOpen("/workspace/replaced", openCreate, both)
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/gone"))
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/replaced"))
	w.create("/workspace/replaced", "somebody else's")
	g := w.again(t)
	lost, err := g.Restore(w.Save())
	must(t, err)
	if len(lost) != 2 || lost[0] != gone || lost[1] != replaced {
		t.Errorf("lost: %v", lost)
	}
	for _, fd := range lost {
		if _, e := g.read(fd, 1); e != estale {
			t.Errorf("errno %d", e)
		}
		if _, e := g.write(fd, "x"); e != estale {
			t.Errorf("errno %d", e)
		}
	}
	again := g.Save()
	g.close(gone)
	if _, err := w.again(t).Restore(again); err != nil {
		t.Error(err)
	}
	if got := g.content("/workspace/replaced"); got != "somebody else's" {
		t.Errorf("%q", got)
	}
}

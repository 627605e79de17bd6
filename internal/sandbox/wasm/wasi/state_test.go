package wasi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// move saves what is open and restores it, by way of JSON, in another System.
func (w *world) move(t *testing.T) (*guest, []int) {
	t.Helper()
	b, err := json.Marshal(w.Save())
	must(t, err)
	var state State
	must(t, json.Unmarshal(b, &state))
	g := w.again(t)
	lost, err := g.Restore(state)
	must(t, err)
	return g, lost
}

func TestOpenFilesMove(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	w.create("/workspace/f", "hello world")
	fd := w.mustOpen("/app/f", openCreate|openTruncate, both)
	_, e := w.write(fd, "hello world")
	w.ok(e)
	w.ok(w.call("fd_seek", fd, 6, 0, out))
	log, e := w.open("/workspace/log", openCreate|openExclusive, writing, flagAppend)
	w.ok(e)
	module := w.mustOpen("/lib/python/os.py", 0, reading)
	_, e = w.read(module, 7)
	w.ok(e)
	renamed := w.mustOpen("/workspace/before", openCreate, both)
	w.ok(w.call("path_rename", rootFD, "/workspace/before", rootFD, "/workspace/after"))
	w.close(2)
	w.ok(w.call("fd_renumber", 1, 77))

	g, lost := w.move(t)
	if len(lost) != 0 {
		t.Errorf("lost: %v", lost)
	}
	if s, e := g.read(fd, 100); s != "world" || e != success {
		t.Errorf("%q, %d", s, e)
	}
	if s, e := g.read(module, 100); s != "sys\n" || e != success {
		t.Errorf("%q, %d", s, e)
	}
	w.create("/workspace/log", "first ")
	_, e = g.write(log, "second")
	g.ok(e)
	if got := g.content("/workspace/log"); got != "first second" {
		t.Errorf("%q", got)
	}
	if _, e := g.read(log, 1); e != ebadf {
		t.Errorf("reading what was opened for writing: errno %d", e)
	}
	_, e = g.write(renamed, "x")
	g.ok(e)
	if got := g.content("/workspace/after"); got != "x" {
		t.Errorf("%q", got)
	}
	if _, e := g.write(77, "x"); e != success {
		t.Errorf("stdout: errno %d", e)
	}
	for _, fd := range []int{1, 2} {
		if _, e := g.write(fd, "x"); fd != renamed && e != ebadf {
			t.Errorf("%d is open", fd)
		}
	}
}

func TestListingsMove(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	for i := range 6 {
		w.create(fmt.Sprint("/workspace/f", i), "")
	}
	fd := w.mustOpen("/workspace", openFolder, both)
	w.ok(w.call("fd_readdir", fd, buffer, 100, 0, out))
	fresh := w.mustOpen("/workspace", openFolder, both)
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/f1"))
	g, _ := w.move(t)
	for _, x := range []struct {
		fd   int
		want string
	}{{fd, "f3"}, {fresh, "f4"}} {
		g.ok(g.call("fd_readdir", x.fd, buffer, 100, 5, out))
		if got := string(g.memory[buffer+24 : buffer+24+g.u32at(buffer+16)]); got != x.want {
			t.Errorf("cookie 5 is %s, not %s", got, x.want)
		}
	}
}

func TestWhatIsGoneIsLost(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	file := w.mustOpen("/workspace/f", openCreate, both)
	w.ok(w.call("path_create_directory", rootFD, "/workspace/d"))
	w.ok(w.call("path_create_directory", rootFD, "/workspace/e"))
	folder := w.mustOpen("/workspace/d", openFolder, both)
	swapped := w.mustOpen("/workspace/e", openFolder, both)
	turned := w.mustOpen("/workspace/g", openCreate, reading)
	state := w.Save()
	must(t, os.Remove(filepath.Join(w.host, "d")))
	must(t, os.Remove(filepath.Join(w.host, "e")))
	must(t, os.WriteFile(filepath.Join(w.host, "e"), nil, 0o644))
	must(t, w.System.Close())
	must(t, os.Remove(filepath.Join(w.host, "f")))
	must(t, os.Remove(filepath.Join(w.host, "g")))
	must(t, os.Mkdir(filepath.Join(w.host, "g"), 0o755))
	g := w.again(t)
	lost, err := g.Restore(state)
	must(t, err)
	if want := []int{file, folder, swapped, turned}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, not %v", lost, want)
	}
	if _, e := g.stat("/workspace/f"); e != enoent {
		t.Error("a file was made")
	}
	for _, fd := range lost {
		g.want(g.call("fd_filestat_get", fd, out), estale)
		g.want(g.call("fd_readdir", fd, buffer, 100, 0, out), estale)
		g.want(g.call("path_filestat_get", fd, 0, "x", out), estale)
		g.close(fd)
		g.want(g.call("fd_close", fd), ebadf)
	}
}

func TestRestoringReplacesWhatWasOpen(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	state := w.Save()
	fd := w.mustOpen("/workspace/f", openCreate, both)
	_, err := w.Restore(state)
	must(t, err)
	w.want(w.call("fd_close", fd), ebadf)
	if len(w.dir.files) != 0 {
		t.Error("a file is still open on the host")
	}
	if _, e := w.write(1, "x"); e != success {
		t.Errorf("stdout: errno %d", e)
	}
}

// What takes a file's name is what a refreshed descriptor leads to.
func TestRefreshedFilesAreThoseThatHaveTheNamesNow(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	replace := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(w.host, "new"), []byte(text), 0o644))
		must(t, os.Rename(filepath.Join(w.host, "new"), filepath.Join(w.host, name)))
	}
	for _, name := range []string{"f", "log", "gone", "back", "nameless"} {
		replace(name, "hello world")
	}
	file := w.mustOpen("/app/f", 0, both)
	w.ok(w.call("fd_seek", file, 6, 0, out))
	log, e := w.open("/workspace/log", 0, writing, flagAppend)
	w.ok(e)
	gone, back := w.mustOpen("/workspace/gone", 0, both), w.mustOpen("/workspace/back", 0, reading)
	nameless := w.mustOpen("/workspace/nameless", 0, both)
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/nameless"))
	folder := w.mustOpen("/workspace", openFolder, both)
	w.ok(w.call("fd_readdir", folder, buffer, 100, 0, out))
	before := w.Save()

	must(t, os.Remove(filepath.Join(w.host, "back")))
	w.Refresh(before) // as a System that was made again finds it
	w.want(w.call("fd_filestat_get", back, out), estale)
	for _, name := range []string{"f", "log", "back", "nameless"} {
		replace(name, "HELLO there")
	}
	must(t, os.Remove(filepath.Join(w.host, "gone")))
	w.Refresh(before)

	for fd, want := range map[int]string{file: "there", back: "HELLO there", nameless: "hello world"} {
		if s, e := w.read(fd, 100); s != want || e != success {
			t.Errorf("%q, %d, want %q", s, e, want)
		}
	}
	for fd, name := range map[int]string{file: "/workspace/f", log: "/workspace/log"} {
		_, e := w.write(fd, "!")
		w.ok(e)
		if got := w.content(name); got != "HELLO there!" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	w.want(w.call("fd_filestat_get", gone, out), estale)
	w.close(gone)
	w.ok(w.call("fd_readdir", folder, buffer, 100, 5, out))
	if got := string(w.memory[buffer+24 : buffer+24+w.u32at(buffer+16)]); got != "log" {
		t.Errorf("cookie 5 is %s", got)
	}
	if _, e := w.write(1, "x"); e != success {
		t.Errorf("stdout: errno %d", e)
	}
	w.Refresh(State{})
	if s, e := w.read(nameless, 100); s != "" || e != success { // nobody knows that it had no name
		t.Errorf("%q, %d", s, e)
	}
}

func TestDamagedStatesAreRefused(t *testing.T) {
	for name, d := range map[string]Descriptor{
		"a negative number":       {FD: -1, Kind: KindDead},
		"a number over the limit": {FD: MaxDescriptors, Kind: KindDead},
		"the root's number":       {FD: rootFD, Kind: KindDead},
		"no kind":                 {FD: 5},
		"an unknown stream":       {FD: 5, Kind: KindStream, Stream: 3},
		"a relative path":         {FD: 5, Kind: KindFile, Path: "workspace/f"},
		"a path that leads up":    {FD: 5, Kind: KindFile, Path: "/workspace/../../f"},
		"a negative offset":       {FD: 5, Kind: KindFile, Path: "/workspace/f", Offset: -1},
		"unknown flags":           {FD: 5, Kind: KindFile, Path: "/workspace/f", Flags: 1 << 9},
	} {
		if _, err := newWorld(t, 0).Restore(State{Descriptors: []Descriptor{d}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	twice := []Descriptor{{FD: 5, Kind: KindDead}, {FD: 5, Kind: KindDead}}
	if _, err := newWorld(t, 0).Restore(State{Descriptors: twice}); err == nil {
		t.Error("one number twice: no error")
	}
}

func TestTheMonotonicClockNeverRunsBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newGuest(t, Config{Monotonic: int64(time.Hour)})
		time.Sleep(time.Minute) // the bubble's clock; nobody waits
		state := old.Save()
		for _, x := range []struct {
			name         string
			begins, want time.Duration
		}{
			{"on a machine that has just begun", 0, time.Hour + time.Minute},
			{"on one that is ahead", 2 * time.Hour, 2 * time.Hour},
		} {
			g := newGuest(t, Config{Monotonic: int64(x.begins)})
			_, err := g.Restore(state)
			must(t, err)
			if got := time.Duration(g.Monotonic()); got != x.want {
				t.Errorf("%s: %v, not %v", x.name, got, x.want)
			}
		}
	})
}

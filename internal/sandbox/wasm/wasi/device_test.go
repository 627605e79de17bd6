package wasi

import (
	"slices"
	"testing"
)

func TestDevices(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	if got := g.names("/dev", 4096); !slices.Equal(got, []string{".", "..", "null", "random", "urandom", "zero"}) {
		t.Errorf("/dev: %q", got)
	}
	for _, name := range []string{"null", "zero", "random", "urandom"} {
		if s, e := g.stat("/dev/" + name); e != success || s.kind != typeChar || s.size != 0 {
			t.Errorf("%s: %+v, %d", name, s, e)
		}
		fd := g.mustOpen("/dev/"+name, openCreate|openTruncate, both)
		if n, e := g.write(fd, "gone"); n != 4 || e != success {
			t.Errorf("writing to %s: %d, %d", name, n, e)
		}
		got, e := g.read(fd, 32)
		g.ok(e)
		if want := map[bool]int{true: 0, false: 32}[name == "null"]; len(got) != want {
			t.Errorf("%s gives %q", name, got)
		}
		g.want(g.call("fd_filestat_set_size", fd, 1), einval)
		g.close(fd)
		reader := g.mustOpen("/dev/"+name, 0, reading)
		if _, e := g.write(reader, "x"); e != ebadf {
			t.Errorf("writing to what was opened for reading: %d", e)
		}
		g.close(reader)
	}
	for _, x := range []struct {
		path   string
		oflags int
		want   errno
	}{
		{"/dev/new", openCreate, erofs}, {"/dev/new", 0, enoent}, {"/dev/null", openCreate | openExclusive, eexist}, {"/dev/null", openFolder, enotdir},
	} {
		if _, e := g.open(x.path, x.oflags, both, 0); e != x.want {
			t.Errorf("opening %s with %d: %d", x.path, x.oflags, e)
		}
	}
	g.want(g.call("path_unlink_file", rootFD, "/dev/null"), erofs)
	g.want(g.call("path_create_directory", rootFD, "/dev/x"), erofs)
}

func TestDuplicates(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	fd := w.mustOpen("/workspace/f", openCreate, both)
	twin, code := w.Duplicate(fd, -1)
	if code != 0 || twin == fd {
		t.Fatalf("%d, %d", twin, code)
	}
	for _, to := range []int{fd, twin} {
		_, e := w.write(to, "ab")
		w.ok(e)
	}
	if got := w.content("/workspace/f"); got != "abab" {
		t.Errorf("they share no offset: %q", got)
	}
	if made, code := w.Duplicate(1, 50); made != 50 || code != 0 {
		t.Errorf("a stream: %d, %d", made, code)
	}

	// They move, and are one then, too.
	g, lost := w.move(t)
	if len(lost) != 0 {
		t.Errorf("lost: %v", lost)
	}
	g.close(fd)
	if _, e := g.write(twin, "cd"); e != success {
		t.Errorf("a descriptor is closed with its twin: %d", e)
	}
	if got := g.content("/workspace/f"); got != "ababcd" {
		t.Errorf("%q", got)
	}
	g.Refresh(State{})
	if _, e := g.write(twin, "ef"); e != success || g.content("/workspace/f") != "ababcdef" {
		t.Errorf("after what was changed from outside: %d, %q", e, g.content("/workspace/f"))
	}
	if _, e := g.write(50, "x"); e != success {
		t.Errorf("a stream's twin: %d", e)
	}
	g.close(twin)

	for _, x := range []struct {
		fd, to int
		want   errno
	}{
		{fd, -1, ebadf}, {-1, 5, ebadf}, {1, MaxDescriptors, ebadf}, {rootFD, -1, eperm}, {1, rootFD, eperm}, {1, 1, success},
	} {
		if _, code := g.Duplicate(x.fd, x.to); errno(code) != x.want {
			t.Errorf("%d to %d: %d", x.fd, x.to, code)
		}
	}
	for {
		if _, code := g.Duplicate(1, -1); code != 0 {
			if errno(code) != emfile {
				t.Errorf("when all are in use: %d", code)
			}
			return
		}
	}
}

func TestDuplicatesOfDamagedStates(t *testing.T) {
	for _, twin := range []int{-1, rootFD, 9, 10, 400} {
		w := newWorld(t, noSpaceLimit)
		if _, err := w.Restore(State{Descriptors: []Descriptor{{FD: 9, Kind: KindStream, Stream: 1, Twin: &twin}}}); err != nil {
			t.Fatal(err)
		}
		if _, e := w.write(9, "x"); e != success {
			t.Errorf("a twin of %d: %d", twin, e)
		}
	}
}

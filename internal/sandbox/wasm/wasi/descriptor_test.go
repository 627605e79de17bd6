package wasi

import (
	"math"
	"testing"
)

func TestRenumberReplaces(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	a := g.mustOpen("/workspace/a", openCreate, both)
	b := g.mustOpen("/workspace/b", openCreate, both)
	g.ok(g.call("fd_renumber", a, b))
	_, e := g.write(b, "to a")
	g.ok(e)
	g.want(g.call("fd_close", a), ebadf)
	g.ok(g.call("fd_renumber", b, 200))
	g.ok(g.call("fd_renumber", 200, 1)) // print goes to the file now
	_, e = g.write(1, "!")
	g.ok(e)
	if got := g.content("/workspace/a"); got != "to a!" {
		t.Errorf("%q", got)
	}
	for _, x := range [][2]int{{77, 5}, {1, 256}, {1, math.MaxUint32}, {math.MaxUint32, 1}} {
		g.want(g.call("fd_renumber", x[0], x[1]), ebadf)
	}
	g.ok(g.call("fd_renumber", 1, 1))
	if n := len(g.System.config.Mounts[1].Dir.files); n != 1 {
		t.Errorf("%d files are open on the host", n)
	}
}

func TestDescriptorsAreLimited(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "")
	opened := 0
	for range 300 {
		if _, e := g.open("/workspace/f", 0, reading, 0); e == success {
			opened++
		} else if e != emfile {
			t.Fatalf("errno %d", e)
		}
	}
	if opened != MaxDescriptors-4 {
		t.Errorf("%d files were opened", opened)
	}
	if _, e := g.open("/workspace/new", openCreate, writing, 0); e != emfile {
		t.Errorf("errno %d", e)
	}
	if _, e := g.stat("/workspace/new"); e != enoent {
		t.Error("a file was made without a descriptor for it")
	}
	g.close(100)
	if fd := g.mustOpen("/workspace/f", 0, reading); fd != 100 {
		t.Errorf("the free number is 100, not %d", fd)
	}
}

func TestRightsOfAFile(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "content")
	for _, x := range []struct {
		name        string
		rights      int
		read, write errno
	}{
		{"reading", reading, success, ebadf},
		{"writing", writing, ebadf, success},
		{"both", both, success, success},
		{"neither", 0, ebadf, ebadf},
	} {
		t.Run(x.name, func(t *testing.T) {
			g.t = t
			fd := g.mustOpen("/workspace/f", 0, x.rights)
			_, e := g.read(fd, 1)
			g.want(e, x.read)
			_, e = g.write(fd, "x")
			g.want(e, x.write)
			g.ok(g.call("fd_fdstat_get", fd, out))
			if got := g.u64at(out + 8); got&both != uint64(x.rights) || g.memory[out] != typeRegular {
				t.Errorf("rights %x, type %d", got, g.memory[out])
			}
			g.ok(g.call("fd_fdstat_set_rights", fd, 0, 0))
			_, e = g.read(fd, 1)
			g.want(e, ebadf)
			_, e = g.write(fd, "x")
			g.want(e, ebadf)
		})
	}
	g.t = t
	g.ok(g.call("fd_fdstat_get", rootFD, out))
	if g.memory[out] != typeFolder || g.u64at(out+16) != rightsAll {
		t.Errorf("the root: type %d, rights %x", g.memory[out], g.u64at(out+16))
	}
	g.ok(g.call("fd_fdstat_get", 1, out))
	if g.memory[out] != typeUnknown || g.u64at(out+8)&rightSeek != 0 {
		t.Error("stdout can be sought")
	}
}

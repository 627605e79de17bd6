package wasi

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheLimitHolds(t *testing.T) {
	const limit = 100_000
	sparse := func(size uint64) func(g *guest, fd int) errno {
		return func(g *guest, fd int) errno { return g.call("fd_filestat_set_size", fd, size) }
	}
	for _, x := range []struct {
		name string
		do   func(g *guest, fd int) errno
		want errno
	}{
		{"a sparse file of the limit fits", sparse(limit), success},
		{"a sparse file over the limit does not", sparse(limit + 1), enospc},
		{"nor one of the largest size", sparse(math.MaxInt64), enospc},
		{"nor room for later", func(g *guest, fd int) errno { return g.call("fd_allocate", fd, limit, 1) }, enospc},
		{"nor a byte far behind the end", func(g *guest, fd int) errno {
			list, n := g.pieces(buffer, 1)
			return g.call("fd_pwrite", fd, list, n, limit, out)
		}, enospc},
		{"nor a byte written after a seek", func(g *guest, fd int) errno {
			g.ok(g.call("fd_seek", fd, limit, 0, out))
			_, e := g.write(fd, "x")
			return e
		}, enospc},
		{"writing over what is there is free", func(g *guest, fd int) errno {
			g.ok(g.call("fd_filestat_set_size", fd, limit))
			g.ok(g.call("fd_seek", fd, 0, 0, out))
			_, e := g.write(fd, strings.Repeat("x", 50_000))
			return e
		}, success},
		{"a file that has shrunk gives its room back", func(g *guest, fd int) errno {
			for range 5 {
				g.ok(g.call("fd_filestat_set_size", fd, limit))
				g.ok(g.call("fd_filestat_set_size", fd, 0))
			}
			return g.call("fd_filestat_set_size", fd, limit)
		}, success},
		{"a second file has to fit as well", func(g *guest, fd int) errno {
			g.ok(g.call("fd_filestat_set_size", fd, limit-entryBytes))
			g.create("/workspace/second", strings.Repeat("x", entryBytes))
			return g.call("fd_filestat_set_size", fd, limit-entryBytes+1)
		}, enospc},
		{"a file that is removed gives its room back", func(g *guest, fd int) errno {
			for range 5 {
				g.create("/workspace/second", strings.Repeat("x", 60_000))
				g.ok(g.call("path_unlink_file", rootFD, "/workspace/second"))
			}
			return g.call("fd_filestat_set_size", fd, limit)
		}, success},
		{"a file that is replaced gives its room back", func(g *guest, fd int) errno {
			for range 5 {
				g.create("/workspace/second", strings.Repeat("x", 40_000))
				g.ok(g.call("path_rename", rootFD, "/workspace/second", rootFD, "/workspace/third"))
			}
			return g.call("fd_filestat_set_size", fd, 60_000)
		}, success},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, limit)
			e := x.do(w.guest, w.mustOpen("/workspace/f", openCreate, both))
			w.want(e, x.want)
			if w.Full() != (x.want == enospc) || w.Full() {
				t.Error("Full tells something else")
			}
		})
	}
}

func TestNothingIsFree(t *testing.T) {
	const limit = 20 * entryBytes
	for name, add := range map[string]func(g *guest, n int) errno{
		"an empty file": func(g *guest, n int) errno {
			fd, e := g.open(fmt.Sprint("/workspace/", n), openCreate|openExclusive, writing, 0)
			if e == success {
				g.close(fd)
			}
			return e
		},
		"a folder": func(g *guest, n int) errno {
			return g.call("path_create_directory", rootFD, fmt.Sprint("/workspace/", n))
		},
		"a folder in a folder": func(g *guest, n int) errno {
			return g.call("path_create_directory", rootFD, "/workspace"+strings.Repeat("/d", n+1))
		},
		"a link": func(g *guest, n int) errno { return g.call("path_symlink", "x", rootFD, fmt.Sprint("/workspace/", n)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limit)
			n := 0
			for ; n < 1000; n++ {
				if e := add(w.guest, n); e != success {
					w.want(e, enospc)
					break
				}
			}
			if n != 20 {
				t.Errorf("%d of them could be made", n)
			}
		})
	}
}

func TestAFolderIsCountedBeforeItGrows(t *testing.T) {
	w := newWorld(t, 100_000)
	must(t, os.MkdirAll(filepath.Join(w.host, "a", "b"), 0o755))
	must(t, os.WriteFile(filepath.Join(w.host, "a", "b", "large"), make([]byte, 70_000), 0o644))
	fd := w.mustOpen("/workspace/f", openCreate, both)
	w.want(w.call("fd_filestat_set_size", fd, 30_000), enospc)
	w.ok(w.call("fd_filestat_set_size", fd, 20_000))
	must(t, os.WriteFile(filepath.Join(w.host, "host"), make([]byte, 5000), 0o644))
	w.dir.Changed()
	w.want(w.call("fd_filestat_set_size", fd, 21_000), enospc)
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/a/b/large"))
	w.ok(w.call("fd_filestat_set_size", fd, 80_000))
}

func TestAFullFolderCanBeReadAndEmptied(t *testing.T) {
	w := newWorld(t, 0)
	must(t, os.WriteFile(filepath.Join(w.host, "f"), []byte("content"), 0o644))
	if got := w.content("/workspace/f"); got != "content" {
		t.Errorf("%q", got)
	}
	fd := w.mustOpen("/workspace/f", 0, both)
	n, e := w.write(fd, "CONTENT")
	if n != 7 || e != success {
		t.Errorf("writing over: %d, %d", n, e)
	}
	if _, e := w.open("/workspace/g", openCreate, writing, 0); e != enospc {
		t.Errorf("a new file: errno %d", e)
	}
	w.want(w.call("path_create_directory", rootFD, "/workspace/f"), eexist)
	w.ok(w.call("path_rename", rootFD, "/workspace/f", rootFD, "/workspace/g"))
	w.ok(w.call("path_unlink_file", rootFD, "/workspace/g"))
}

func TestFoldersTooDeepToBeCountedAreFull(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	deep := "/workspace" + strings.Repeat("/d", maxDepth-1)
	for i := range maxDepth - 1 {
		w.ok(w.call("path_create_directory", rootFD, deep[:len("/workspace")+2*(i+1)]))
	}
	w.want(w.call("path_create_directory", rootFD, deep+"/d"), enametoolong)
	w.ok(w.call("path_create_directory", rootFD, "/workspace/e"))
	w.ok(w.call("path_create_directory", rootFD, "/workspace/e/e"))
	w.ok(w.call("path_rename", rootFD, "/workspace/d", rootFD, "/workspace/e/e/d"))
	w.dir.Changed()
	w.want(w.call("path_create_directory", rootFD, "/workspace/new"), enospc)
	w.ok(w.call("path_rename", rootFD, "/workspace/e/e/d", rootFD, "/workspace/d"))
	w.dir.Changed()
	w.ok(w.call("path_create_directory", rootFD, "/workspace/new"))
}

// TestRemovingNearTheLimitDoesNotWalkEachTime holds the folder full while
// files come and go: what they took is known without counting again.
func TestRemovingNearTheLimitDoesNotWalkEachTime(t *testing.T) {
	w := newWorld(t, 3*entryBytes)
	w.create("/workspace/keep", "")
	w.create("/workspace/also", "")
	for range 10 {
		w.create("/workspace/f", "x")
		if _, e := w.open("/workspace/g", openCreate, writing, 0); e != enospc {
			t.Fatalf("errno %d", e)
		}
		w.dir.stale = false // from now on nothing is counted
		w.ok(w.call("path_unlink_file", rootFD, "/workspace/f"))
		if w.dir.stale && stableInodes {
			t.Fatal("how much room there is has been forgotten")
		}
	}
}

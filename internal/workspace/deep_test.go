//go:build unix

package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/fault"
)

// dig makes so many folders in each other as a program does, with relative paths, and
// a file in the deepest; beside makes another folder in each.
func dig(t *testing.T, dir, name string, depth int, beside bool) {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	syscall.Close(fd)
	for range depth {
		if err == nil && beside {
			err = root.Mkdir("beside", 0o755)
		}
		if err == nil {
			err = root.Mkdir(name, 0o755)
		}
		var sub *os.Root
		if err == nil {
			sub, err = root.OpenRoot(name)
		}
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		root = sub
	}
	if err := root.WriteFile("f", make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	root.Close()
}

// few lets the process have so many descriptors more than it has now at most.
func few(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	highest := 0
	for _, e := range open {
		n := 0
		fmt.Sscan(e.Name(), &n)
		highest = max(highest, n)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	limit := was
	limit.Cur = min(limit.Cur, uint64(highest+more))
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// However deep folders lie in each other, what is in them counts, and can be removed,
// with few descriptors.
func TestTheDepthOfFoldersHidesNothing(t *testing.T) {
	for _, c := range []struct {
		name, folder string
		depth        int
		beside       bool
	}{
		{"deeper than is kept", "d", 300, false},
		{"beyond any path", strings.Repeat("d", 255), 300, false},
		{"thousands", "d", 5000, false},
		{"with a folder beside each", "d", 3000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, dir := openDeep(t)
			dig(t, dir, c.folder, c.depth, c.beside)
			want := int64(c.depth)*blockBytes + 1<<20
			if c.beside {
				want += int64(c.depth) * blockBytes
			}
			few(t, 130)
			if got, err := tree.DiskBytes(); err != nil {
				t.Error(err)
			} else if got != want {
				t.Errorf("tree.DiskBytes(): got %v, want %v", got, want)
			}
			if _, more, err := tree.List(t.Context(), ""); err != nil {
				t.Errorf("that files are left out of the list: got error %v, want none", err)
			} else if !more {
				t.Error("that files are left out of the list: got false, want true")
			}
			if err := RemoveAll(dir); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Error("it is still there")
			}
		})
	}
}

func openDeep(t *testing.T) (*Tree, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(dir, Options{DiskBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close(); _ = RemoveAll(dir) })
	return tree, dir
}

// What lies too deep to be kept counts and is told. Going back leaves it where its
// folder is, takes it away where that was not there, and elsewhere it is missing.
func TestWhatLiesTooDeepIsTold(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: 1 << 30})
	g.plant("a", "kept")
	empty, _ := g.capture(nil)
	if u := empty.Unkept(); u.Count != 0 {
		t.Errorf("nothing is missing: u.Count: got %v, want 0", u.Count)
	} else if u.First != "" {
		t.Errorf("nothing is missing: u.First: got %q, want none", u.First)
	}
	dig(t, g.dir, "d", 300, false)
	with, _ := g.capture(empty)
	u := with.Unkept()
	switch {
	case u.Count != 1:
		t.Errorf("u.Count = %v, want 1: %+v", u.Count, u)
	case !strings.HasPrefix(u.First, "d/d/d"):
		t.Errorf(`u.First = %q, want prefix "d/d/d"`, u.First)
	case len(u.First) > firstBytes+8:
		t.Errorf("len(u.First) = %d, want at most %v", len(u.First), firstBytes+8)
	}
	if want := int64(301)*blockBytes + 1<<20; g.Used() != want {
		t.Errorf("it counts %d bytes, want %d", g.Used(), want)
	}
	data, err := with.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ReadListing(data, 1<<30); err != nil {
		t.Errorf("read again: got error %v, want none", err)
	} else if again.Unkept() != u {
		t.Errorf("read again: again.Unkept(): got %v, want %v", again.Unkept(), u)
	}
	g.apply(with, nil)
	if want := int64(301)*blockBytes + 1<<20; g.Used() != want {
		t.Errorf("after going to where it is, it counts %d bytes, want %d", g.Used(), want)
	}
	g.apply(empty, nil)
	if got, err := g.DiskBytes(); err != nil {
		t.Errorf("after going back: got error %v, want none", err)
	} else if got != blockBytes {
		t.Errorf("after going back: got %v, want %v", got, blockBytes)
	}
	g.apply(with, nil)
	if got, err := g.DiskBytes(); err != nil {
		t.Errorf("elsewhere: got error %v, want none", err)
	} else if got != 202*blockBytes {
		t.Errorf("elsewhere: got %v, want %v", got, 202*blockBytes)
	}
}

// What is moved below another folder gets deeper than anybody who made it saw.
func TestWhatIsMovedDeeperCounts(t *testing.T) {
	tree, dir := openDeep(t)
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		dig(t, filepath.Join(dir, name), "d", 150, false)
	}
	was, err := tree.DiskBytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b", strings.Repeat("d/", 150), "a")); err != nil {
		t.Fatal(err)
	}
	if now, err := tree.DiskBytes(); err != nil {
		t.Error(err)
	} else if now != was {
		t.Errorf("tree.DiskBytes(): got %v, want %v", now, was)
	}
	if _, err := tree.Write("f", make([]byte, 1<<30)); fault.KindOf(err) == "" {
		t.Error("there is room for what is over the limit")
	}
}

// Files with holes say of themselves what they like: the sum stays one.
func TestSumsOfSizesAreNeverNegative(t *testing.T) {
	if got := add(add(0, 1<<62), 1<<63-1); got != mostWeight {
		t.Errorf("it is %d", got)
	}
	if got := add(mostWeight, mostWeight) * 8; got <= 0 {
		t.Errorf("eight of them are %d", got)
	}
}

func BenchmarkDiskBytes(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, _ := benchTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.DiskBytes(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

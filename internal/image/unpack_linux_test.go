package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

// attack is a layer that tries something.
type attack struct {
	name    string
	entries []entry
	refused fault.Kind // empty: it is taken, and harmless
	check   func(t *testing.T, s *Store, img Image)
}

// without a check of its own a layer that is taken must have this tree.
func gives(lines ...string) func(*testing.T, *Store, Image) {
	return func(t *testing.T, s *Store, img Image) { checkTree(t, rootTree(t, s, img), lines...) }
}

func leaves(want LeftOut, lines ...string) func(*testing.T, *Store, Image) {
	return func(t *testing.T, s *Store, img Image) {
		gives(lines...)(t, s, img)
		got := img.LeftOut
		got.Owners = want.Owners // it depends on who we are
		if got != want {
			t.Errorf("left out was %+v, want %+v", got, want)
		}
	}
}

// secret is a file outside of the store that no layer may read or change.
const secret = "outside"

var attacks = []attack{
	{"a path that leads upwards", []entry{file("../escaped", "x")}, fault.Invalid, nil},
	{"a path that goes down and up again", []entry{file("a/../../escaped", "x")}, fault.Invalid, nil},
	{"a path that goes up and stays within", []entry{file("a/../b", "x")}, fault.Invalid, nil},
	{"a folder that is called two dots", []entry{dirOf("a/..")}, fault.Invalid, nil},
	{"an absolute name is one below the root", []entry{file("/etc/passwd", "x")}, "", gives("etc drwxr-xr-x", "etc/passwd -rw-r--r-- x")},
	{"slashes and dots between", []entry{file(".//a///./b", "x")}, "", gives("a drwxr-xr-x", "a/b -rw-r--r-- x")},
	{"a link out, then a file through it", []entry{symlink("a", "../../../../.."), file("a/escaped", "x")}, fault.Invalid, nil},
	{"an absolute link, then a file through it", []entry{symlink("a", "/tmp"), file("a/escaped", "x")}, fault.Invalid, nil},
	{"a link to a folder, then another link through it out", []entry{dirOf("b"), symlink("a", "b"), symlink("a/up", "../.."), file("b/up/escaped", "x")}, fault.Invalid, nil},
	{"a link that leads to itself", []entry{symlink("a", "a"), file("a/b", "x")}, fault.Invalid, nil},
	{"a link that leads nowhere, then a file through it", []entry{symlink("a", "b"), file("a/c", "x")}, fault.Invalid, nil},
	{"a link within, then a file through it", []entry{dirOf("usr/lib"), symlink("lib", "usr/lib"), file("lib/a", "x")}, "",
		gives("lib -> usr/lib", "usr drwxr-xr-x", "usr/lib drwxr-xr-x", "usr/lib/a -rw-r--r-- x")},
	{"a link out, then a file of its name", []entry{symlink("a", "/etc/passwd"), file("a", "x")}, "", gives("a -rw-r--r-- x")},
	{"a link out, then a folder of its name", []entry{symlink("a", "/etc"), dirOf("a"), file("a/b", "x")}, "", gives("a drwxr-xr-x", "a/b -rw-r--r-- x")},
	{"links lead where they want", []entry{symlink("a", "/etc/shadow"), symlink("b", "../../x")}, "", gives("a -> /etc/shadow", "b -> ../../x")},
	{"a hard link out", []entry{hardlink("a", "../"+secret)}, fault.Invalid, nil},
	{"an absolute hard link is one below the root", []entry{hardlink("a", "/etc/passwd")}, fault.Invalid, nil},
	{"a hard link through a link out", []entry{symlink("d", "../.."), hardlink("a", "d/"+secret)}, fault.Invalid, nil},
	{"a hard link to a link, then a file of its name", []entry{symlink("l", "/etc/passwd"), hardlink("a", "l"), file("a", "x")}, "", gives("a -rw-r--r-- x", "l -> /etc/passwd")},
	{"a hard link to a folder", []entry{dirOf("d"), hardlink("a", "d")}, fault.Invalid, nil},
	{"a hard link to itself", []entry{file("a", "x"), hardlink("a", "a")}, "", gives("a -rw-r--r-- x")},
	{"a hard link to what is not there", []entry{hardlink("a", "b")}, fault.Invalid, nil},
	{"a hard link to what comes later", []entry{hardlink("a", "b"), file("b", "x")}, fault.Invalid, nil},
	{"a hard link in the place of the folder of its file", []entry{file("d/a", "x"), hardlink("d", "d/a")}, fault.Invalid, nil},
	{"a second name, then another file under the first", []entry{file("a", "x"), hardlink("b", "a"), file("a", "y")}, "", gives("a -rw-r--r-- y", "b -rw-r--r-- x")},
	{"devices and FIFOs", []entry{
		dirOf("dev").with(func(h *tar.Header) { h.Typeflag, h.Name = tar.TypeChar, "null" }),
		dirOf("").with(func(h *tar.Header) { h.Typeflag, h.Name, h.Devmajor = tar.TypeBlock, "dev/sda", 8 }),
		dirOf("").with(func(h *tar.Header) { h.Typeflag, h.Name = tar.TypeFifo, "fifo" }),
		dirOf("").with(func(h *tar.Header) { h.Typeflag, h.Name = 'V', "volume" }), file("a", "x"),
	}, "", leaves(LeftOut{Devices: 4}, "a -rw-r--r-- x")},
	{"a device that is a whiteout of overlayfs", []entry{dirOf("").with(func(h *tar.Header) { h.Typeflag, h.Name = tar.TypeChar, "a" })}, "", leaves(LeftOut{Devices: 1})},
	{"setuid and setgid", []entry{
		file("su", "x").with(func(h *tar.Header) { h.Mode = 0o6755 }),
		dirOf("d").with(func(h *tar.Header) { h.Mode = 0o3777 }),
	}, "", leaves(LeftOut{Setuid: 2}, "d dtrwxrwxrwx", "su -rwxr-xr-x x")},
	{"a setuid bit behind a second name", []entry{file("a", "x"), hardlink("b", "a").with(func(h *tar.Header) { h.Mode = 0o4755 })}, "", gives("a -rw-r--r-- x", "b -rw-r--r-- x")},
	{"extended attributes", []entry{file("a", "x").with(func(h *tar.Header) {
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02", "SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.x": "1"}
	})}, "", leaves(LeftOut{Xattrs: 1}, "a -rw-r--r-- x")},
	{"a name in a PAX record that leads upwards", []entry{file("harmless", "x").with(func(h *tar.Header) { h.Name = "../" + strings.Repeat("x", 120) })}, fault.Invalid, nil},
	{"a hard link in a PAX record that leads upwards", []entry{hardlink("a", "../"+strings.Repeat("x", 120))}, fault.Invalid, nil},
	{"a global PAX header", []entry{entry{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"path": "../escaped"}}, ""}, file("a", "x")}, "", gives("a -rw-r--r-- x")},
	{"a file twice", []entry{file("a", "x"), file("a", "longer")}, "", gives("a -rw-r--r-- longer")},
	{"a file in the place of a folder", []entry{file("a/b/c", "x"), file("a", "y")}, "", gives("a -rw-r--r-- y")},
	{"a folder in the place of a file", []entry{file("a", "x"), dirOf("a"), file("a/b", "y")}, "", gives("a drwxr-xr-x", "a/b -rw-r--r-- y")},
	{"a file below a file", []entry{file("a", "x"), file("a/b", "y")}, fault.Invalid, nil},
	{"the root as a file", []entry{file("./", "").with(func(h *tar.Header) { h.Typeflag, h.Name = tar.TypeSymlink, "."; h.Linkname = "/" })}, fault.Invalid, nil},
	{"a whiteout of nothing", []entry{file("d/.wh.", "")}, fault.Invalid, nil},
	{"a whiteout of a folder itself", []entry{file("d/.wh..", "")}, fault.Invalid, nil},
	{"a whiteout of what is above", []entry{file("d/.wh...", "")}, fault.Invalid, nil},
	{"a whiteout in a whiteout", []entry{dirOf(".wh.d"), file(".wh.d/a", "x")}, fault.Invalid, nil},
	{"what AUFS left", []entry{dirOf(".wh..wh.plnk"), file(".wh..wh.plnk/1.2", "x"), file(".wh..wh.aufs", "")}, "", gives()},
	{"a name that is too long", []entry{file(strings.Repeat("n", 256), "x")}, fault.Invalid, nil},
	{"a path that is too long", []entry{file(strings.Repeat("abcdefgh/", 500)+"f", "x")}, fault.Invalid, nil},
	{"a path that is too deep", []entry{file(strings.Repeat("d/", 129)+"f", "x")}, fault.Invalid, nil},
	{"names that a terminal would obey", []entry{file("a\x1b[2J\nb", "x")}, "", gives("a\x1b[2J\nb -rw-r--r-- x")},
	{"an owner that no system has", []entry{file("a", "x").with(func(h *tar.Header) { h.Uid = 1 << 40 })}, fault.Invalid, nil},
	{"a folder that not even its owner may enter", []entry{dirOf("d").with(func(h *tar.Header) { h.Mode = 0 }), file("d/a", "x")}, "", func(t *testing.T, s *Store, img Image) {
		if got := rootTree(t, s, img); len(got) != 2 {
			t.Errorf("the tree is %q", got)
		}
	}},
	{"a huge file", []entry{file("a", strings.Repeat("x", 2<<20))}, fault.Exhausted, nil},
	{"a thousand small files that take more on the disk", many(300, "x"), fault.Exhausted, nil},
	{"too many entries", many(1001, ""), fault.Exhausted, nil},
	{"too many folders that are only implied", []entry{file(strings.Repeat("a/", 120)+"f", ""), file(strings.Repeat("b/", 120)+"f", ""), file(strings.Repeat("c/", 120)+"f", "")}, fault.Exhausted, nil},
	{"the same file again and again", slicesRepeat(file("a", strings.Repeat("x", 100<<10)), 20), fault.Exhausted, nil},
}

func many(n int, content string) []entry {
	var all []entry
	for i := range n {
		e := hardlink(fmt.Sprint(i), "0") // takes no room
		if i == 0 || content != "" {
			e = file(fmt.Sprint(i), content)
		}
		all = append(all, e)
	}
	return all
}

func slicesRepeat(e entry, n int) []entry {
	var all []entry
	for range n {
		all = append(all, e)
	}
	return all
}

// small bounds the images of the attacks.
func small(c *Config) { c.Bytes, c.Entries = 1<<20, 1000 }

// TestNoLayerLeavesItsFolder is attack 23.
func TestNoLayerLeavesItsFolder(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			s := store(t, small)
			outside := filepath.Join(filepath.Dir(s.config.Dir), secret)
			if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			img, err := put(t, s, "attack", tarOf(t, a.entries...))
			if got := fault.KindOf(err); got != a.refused {
				t.Fatalf("it is %q: %v: %v; want %q", got, err, cause(err), a.refused)
			}
			around, err := os.ReadDir(filepath.Dir(s.config.Dir))
			if err != nil {
				t.Fatalf("around the store: got error %v, want none", err)
			}
			if len(around) != 2 {
				t.Errorf("around the store: len(around): got %d, want 2: %v", len(around), around)
			}
			if got, err := os.ReadFile(outside); err != nil {
				t.Errorf("the file outside: got error %v, want none", err)
			} else if string(got) != secret {
				t.Errorf("the file outside: got %q, want %q", string(got), secret)
			}
			if a.refused != "" {
				checkClean(t, s)
				return
			}
			a.check(t, s, img)
		})
	}
}

// TestATarThatLiesAboutItself has what tar.Writer refuses to write.
func TestATarThatLiesAboutItself(t *testing.T) {
	sparse := func(size string) []byte {
		records := ""
		for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=" + size, "GNU.sparse.name=hole"} {
			n := len(kv) + 3
			if n+len(fmt.Sprint(n))-1 > n {
				n = len(kv) + 2 + len(fmt.Sprint(len(kv)+4))
			}
			records += fmt.Sprintf("%d %s\n", n, kv)
		}
		data := "1\n0\n0\n" + strings.Repeat("\x00", 506)
		var b bytes.Buffer
		writeRaw(&b, 'x', "pax", records)
		writeRaw(&b, '0', "hole", data)
		b.Write(make([]byte, 1024))
		return b.Bytes()
	}
	for _, test := range []struct {
		name string
		data []byte
		want fault.Kind
	}{
		{"a file of holes that is larger than any disk", sparse("1152921504606846976"), fault.Exhausted},
		{"a file of holes that is larger than any number", sparse("9223372036854775807"), fault.Exhausted},
		{"a file of holes of a negative size", sparse("-5"), fault.Invalid},
		{"a file that is cut", tarOf(t, file("a", strings.Repeat("x", 5000)))[:3000], fault.Invalid},
		{"a header that is cut", tarOf(t, file("a", "x"))[:300], fault.Invalid},
		{"no tar at all", bytes.Repeat([]byte("text"), 1000), fault.Invalid},
		{"compressed twice", archivetest.Gzip(t, archivetest.Gzip(t, tarOf(t, file("a", "x")))), fault.Invalid},
		{"a PAX record without an end", func() []byte {
			var b bytes.Buffer
			writeRaw(&b, 'x', "pax", "999 path=../a\n")
			writeRaw(&b, '0', "a", "x")
			return b.Bytes()
		}(), fault.Invalid},
		{"a PAX record with a zero in the name", func() []byte {
			var b bytes.Buffer
			writeRaw(&b, 'x', "pax", "12 path=a\x00b\n")
			writeRaw(&b, '0', "a", "x")
			return b.Bytes()
		}(), fault.Invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := store(t, small)
			if _, err := put(t, s, "attack", test.data); fault.KindOf(err) != test.want {
				t.Errorf("it is %q: %v: %v", fault.KindOf(err), err, cause(err))
			}
			checkClean(t, s)
		})
	}
}

// writeRaw writes a header and a content as no library would.
func writeRaw(b *bytes.Buffer, kind byte, name, content string) {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", len(content)))
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	b.Write(h)
	b.WriteString(content)
	b.Write(make([]byte, (512-len(content)%512)%512))
}

// TestABombIsNotUnpackedToItsEnd has a megabyte that would become 256.
func TestABombIsNotUnpackedToItsEnd(t *testing.T) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	const size = 1 << 28
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: size, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"a file that says how large it is": packed.Bytes(),
		"what stands behind the tar": func() []byte {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
			_, _ = z.Write(tarOf(t, file("a", "x")))
			_, _ = io.CopyN(z, zeros{}, size)
			_ = z.Close()
			return b.Bytes()
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, small)
			src := sourceOf(t, tarOf(t, file("a", "x")))
			counts := &countedBody{in: bytes.NewReader(data)}
			src.layers[0].open = counts.open
			lock, err := s.adding(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if _, err := s.add(t.Context(), "x", src, newMeter(nil)); fault.KindOf(err) != fault.Exhausted {
				t.Errorf("it is %v: %v", err, cause(err))
			}
			if counts.n > int64(len(data))/2 {
				t.Errorf("of %d bytes %d were read", len(data), counts.n)
			}
			checkClean(t, s)
		})
	}
}

func TestWhatAFileIsStays(t *testing.T) {
	s := store(t, nil)
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	img := mustPut(t, s, "files", tarOf(t,
		dirOf("tmp").with(func(h *tar.Header) { h.Mode, h.ModTime = 0o1777, at }),
		file("tmp/run", "#!").with(func(h *tar.Header) { h.Mode, h.ModTime, h.Uid, h.Gid = 0o750, at, 1000, 1001 }),
		symlink("tmp/l", "run").with(func(h *tar.Header) { h.Uid = 1000 }),
		dirOf("home").with(func(h *tar.Header) { h.Uid, h.Gid = 1000, 1000 }),
	))
	checkTree(t, rootTree(t, s, img), "home drwxr-xr-x", "tmp dtrwxrwxrwx", "tmp/l -> run", "tmp/run -rwxr-x--- #!")
	dir := filepath.Join(s.root(img.ID), treeFolder)
	for _, name := range []string{"tmp", "tmp/run"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		} else if !info.ModTime().Equal(at) {
			t.Errorf("%s: got the time %v, want %v", name, info.ModTime(), at)
		}
	}
	for name, want := range map[string][2]int{"tmp/run": {1000, 1001}, "tmp/l": {1000, 0}, "home": {1000, 1000}, "tmp": {0, 0}} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		uid, gid, _ := ownerOf(info)
		if os.Geteuid() != 0 {
			want = [2]int{os.Getuid(), os.Getgid()}
		}
		if [2]int{uid, gid} != want {
			t.Errorf("%s belongs to %d:%d, want %v", name, uid, gid, want)
		}
	}
	if os.Geteuid() != 0 && img.LeftOut.Owners != 3 {
		t.Errorf("%d owners were left out", img.LeftOut.Owners)
	}
}

// TestAnotherUsersUmaskChangesNothing is not parallel: a umask is the process's.
func TestAnotherUsersUmaskChangesNothing(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	s := store(t, nil)
	img := mustPut(t, s, "files", tarOf(t, file("a/b/c", "x"), dirOf("d").with(func(h *tar.Header) { h.Mode = 0o777 })))
	checkTree(t, rootTree(t, s, img), "a drwxr-xr-x", "a/b drwxr-xr-x", "a/b/c -rw-r--r-- x", "d drwxrwxrwx")
	if info, err := os.Stat(filepath.Join(s.root(img.ID), treeFolder)); err != nil {
		t.Errorf("the root: got error %v, want none", err)
	} else if info.Mode().Perm() != 0o755 {
		t.Errorf("the root: info.Mode().Perm(): got %#o, want 0o755", info.Mode().Perm())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzUnpack has any bytes as a layer: it is taken or refused, and whatever it is,
// nothing outside changes, and nothing special is inside.
func FuzzUnpack(f *testing.F) {
	for _, a := range attacks {
		if data := tarOf(f, a.entries...); len(data) < 64<<10 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		parent := t.TempDir()
		dir := filepath.Join(parent, "tree")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, secret), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		room := &room{maxBytes: 1 << 20, maxEntries: 200}
		c, err := unpack(t.Context(), dir, &marked{room.bound(bytes.NewReader(data))}, room.share())
		if k := fault.KindOf(err); err != nil && k != fault.Invalid && k != fault.Exhausted {
			t.Errorf("it is %q: %v: %v", k, err, cause(err))
		}
		around, _ := os.ReadDir(parent)
		got, readErr := os.ReadFile(filepath.Join(parent, secret))
		switch {
		case len(around) != 2:
			t.Errorf("outside there: len(around) = %d, want 2: %+v", len(around), around)
		case string(got) != secret:
			t.Errorf("outside there: got = %q, want %q", string(got), secret)
		case readErr != nil:
			t.Errorf("outside there: %v", readErr)
		}
		seen := int64(0)
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				t.Error(err)
				return nil
			}
			seen++
			if kind := d.Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
				t.Errorf("%q is a %v", path, kind)
			}
			if info, err := d.Info(); err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.Errorf("%q is %v", path, info.Mode())
			}
			return nil
		})
		if seen-1 > room.maxEntries {
			t.Errorf("seen-1: got %v, want at most %v", seen-1, room.maxEntries)
		}
		if err == nil && seen-1 > c.Entries {
			t.Errorf("entries: got %d, want at most the %d that were counted", seen-1, c.Entries)
		}
	})
}

func TestWhatATryTookIsThereForTheNext(t *testing.T) {
	room := &room{maxBytes: 2 * blockBytes, maxEntries: 2}
	for range 3 {
		mine := room.share()
		if err := errors.Join(mine.grow(2*blockBytes), mine.entry(), mine.entry()); err != nil {
			t.Fatal(err)
		}
		if mine.entry() == nil {
			t.Error("mine.entry(): got nil, want one")
		}
		if mine.grow(1) == nil {
			t.Error("mine.grow(1): got nil, want one")
		}
		mine.giveBack()
	}
}

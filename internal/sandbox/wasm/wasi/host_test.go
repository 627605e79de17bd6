package wasi

import (
	"slices"
	"strings"
	"testing"
)

func TestHostCallsUseTheSameFiles(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	large := strings.Repeat("0123456789", 20_000)
	must(t, w.WriteFile("/workspace/f", []byte(large), WriteMode{}))
	must(t, w.WriteFile("/app/f", []byte("end"), WriteMode{Append: true}))
	if b, err := w.ReadFile("/workspace/f"); err != nil || string(b) != large+"end" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	must(t, w.Truncate("/workspace/f", 4))
	must(t, w.SetTimes("/workspace/f", 1e18, 2e18))
	info, err := w.Stat("/workspace/f", true)
	if err != nil || info.Kind != "file" || info.Size != 4 || info.Accessed != 1e18 || info.Modified != 2e18 || info.Links != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	must(t, w.Mkdir("/workspace/d"))
	must(t, w.Symlink("/workspace/f", "/workspace/d/l"))
	if target, err := w.Readlink("/workspace/d/l"); err != nil || target != "../f" {
		t.Errorf("%q, %v", target, err)
	}
	if info, err := w.Stat("/workspace/d/l", false); err != nil || info.Kind != "link" {
		t.Errorf("%+v, %v", info, err)
	}
	must(t, w.Rename("/workspace/f", "/workspace/g"))
	if entries, err := w.ReadDir("/workspace"); err != nil || !slices.Equal(entries, []Entry{{"d", "folder"}, {"g", "file"}}) {
		t.Errorf("%v, %v", entries, err)
	}
	must(t, w.Unlink("/workspace/d/l"))
	must(t, w.Rmdir("/workspace/d"))
	if n := len(w.dir.files); n != 0 {
		t.Errorf("%d files stayed open", n)
	}
	var random, zero [16]byte
	if w.Random(random[:]); random == zero {
		t.Error("no random bytes")
	}
}

func TestHostCallsFailByName(t *testing.T) {
	w := newWorld(t, 100_000)
	w.create("/workspace/f", "")
	w.link("../secret", "out")
	read := func(path string) func() error { return func() error { _, err := w.ReadFile(path); return err } }
	write := func(path string, size int, mode WriteMode) func() error {
		return func() error { return w.WriteFile(path, make([]byte, size), mode) }
	}
	for _, x := range []struct {
		name string
		call func() error
		want FileError
	}{
		{"a file that is not there", read("/workspace/none"), "ENOENT"},
		{"a folder that is read", read("/workspace"), "EISDIR"},
		{"a link out of the mount", read("/workspace/out"), "EPERM"},
		{"a path that leads up", read("/workspace/../../secret"), "ENOENT"},
		{"a new file that is there", write("/workspace/f", 0, WriteMode{Exclusive: true}), "EEXIST"},
		{"a file over the limit", write("/workspace/f", 200_000, WriteMode{}), "ENOSPC"},
		{"a file in the library", write("/lib/python/os.py", 1, WriteMode{}), "EROFS"},
		{"a file above the mounts", write("/f", 1, WriteMode{}), "EROFS"},
		{"the removal of a mount", func() error { return w.Rmdir("/workspace") }, "EBUSY"},
		{"the removal of a file as a folder", func() error { return w.Rmdir("/workspace/f") }, "ENOTDIR"},
		{"the removal of a folder as a file", func() error { return w.Unlink("/workspace") }, "EISDIR"},
		{"a link into another mount", func() error { return w.Symlink("/lib/python/os.py", "/workspace/l") }, "EPERM"},
		{"a listing of a file", func() error { _, err := w.ReadDir("/workspace/f"); return err }, "ENOTDIR"},
		{"a negative size", func() error { return w.Truncate("/workspace/f", -1) }, "EINVAL"},
		{"a path with a zero byte", func() error { return w.Mkdir("/workspace/\x00") }, "EINVAL"},
		{"a path that is too long", func() error { return w.Mkdir(strings.Repeat("x/", 4000)) }, "ENAMETOOLONG"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if err := x.call(); err != x.want {
				t.Errorf("%v, not %v", err, x.want)
			}
		})
	}
	if !w.Full() {
		t.Error("that there was no room has not been told")
	}
}

package wasi

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"testing/fstest"
)

// TestBadAddressesAreRefused gives every function a pointer, or a length, that
// is outside of memory, at each place where it takes one; nothing may happen
// then but the answer.
func TestBadAddressesAreRefused(t *testing.T) {
	type call struct {
		name   string
		params []any
	}
	const size = 256 << 10 // of the memory
	calls := func(fd, folder int) []call {
		long, end := "/workspace/x", uint32(size)
		return []call{
			{"args_sizes_get", []any{end, out}}, {"args_sizes_get", []any{out, end}},
			{"environ_sizes_get", []any{end, out}}, {"environ_sizes_get", []any{out, end - 3}},
			{"clock_res_get", []any{0, end}}, {"clock_time_get", []any{0, 0, end - 7}},
			{"fd_fdstat_get", []any{fd, end - 23}}, {"fd_filestat_get", []any{fd, end - 63}},
			{"fd_prestat_get", []any{rootFD, end - 7}}, {"fd_prestat_dir_name", []any{rootFD, end, 1}},
			{"fd_read", []any{fd, end, 1, out}}, {"fd_read", []any{fd, end - 8, 2, out}}, {"fd_read", []any{fd, 0, 1, end}},
			{"fd_read", []any{0, end, 1, out}}, {"fd_read", []any{0, 0, 1, end}},
			{"fd_write", []any{fd, end, 1, out}}, {"fd_write", []any{fd, math.MaxUint32, 1, out}}, {"fd_write", []any{fd, 0, 1, end}},
			{"fd_write", []any{1, 0, 1, end - 3}}, {"fd_write", []any{1, math.MaxUint32, 1, out}},
			{"fd_pread", []any{fd, end, 1, 0, out}}, {"fd_pread", []any{fd, 0, 1, 0, end}},
			{"fd_pwrite", []any{fd, end, 1, 0, out}}, {"fd_pwrite", []any{fd, 0, 1, 0, end}},
			{"fd_readdir", []any{folder, end - 10, 11, 0, out}}, {"fd_readdir", []any{folder, buffer, 100, 0, end}},
			{"fd_seek", []any{fd, 0, 0, end}}, {"fd_tell", []any{fd, end}},
			{"path_create_directory", []any{rootFD, end - 3, 4}}, {"path_filestat_get", []any{rootFD, 0, end, 1, out}},
			{"path_filestat_get", []any{rootFD, 0, long, end}}, {"path_filestat_set_times", []any{rootFD, 0, end, 1, 0, 0, 0}},
			{"path_link", []any{rootFD, 0, end, 1, rootFD, long}}, {"path_link", []any{rootFD, 0, "/workspace/f", rootFD, end, 1}},
			{"path_open", []any{rootFD, 0, end, 1, openCreate, both, both, 0, out}}, {"path_open", []any{rootFD, 0, long, openCreate, both, both, 0, end}},
			{"path_readlink", []any{rootFD, end, 1, buffer, 1, out}}, {"path_readlink", []any{rootFD, "/workspace/l", end, 1, out}},
			{"path_readlink", []any{rootFD, "/workspace/l", buffer, 1, end}},
			{"path_remove_directory", []any{rootFD, end, 1}}, {"path_rename", []any{rootFD, end, 1, rootFD, long}},
			{"path_rename", []any{rootFD, "/workspace/f", rootFD, end, 1}}, {"path_symlink", []any{end, 1, rootFD, long}},
			{"path_symlink", []any{"x", rootFD, end, 1}}, {"path_unlink_file", []any{rootFD, end, 1}},
			{"poll_oneoff", []any{end - 47, buffer, 1, out}}, {"poll_oneoff", []any{0, end - 31, 1, out}}, {"poll_oneoff", []any{0, buffer, 1, end}},
			{"random_get", []any{end - 1, 2}}, {"random_get", []any{1, math.MaxUint32}},
		}
	}
	w := newWorld(t, noSpaceLimit)
	w.create("/workspace/f", "content")
	w.ok(w.call("path_symlink", "f", rootFD, "/workspace/l"))
	fd, folder := w.mustOpen("/workspace/f", 0, both), w.mustOpen("/workspace", openFolder, both)
	before := hostFiles(t, w.host)
	tested := map[string]bool{}
	for _, x := range calls(fd, folder) {
		if e := w.call(x.name, x.params...); e != efault {
			t.Errorf("%s%v: errno %d", x.name, x.params, e)
		}
		tested[x.name] = true
	}
	w.want(w.call("fd_tell", fd, out), success)
	if w.u64at(out) != 0 {
		t.Error("the offset has moved")
	}
	for name, content := range hostFiles(t, w.host) {
		if before[name] != content {
			t.Errorf("%s is now %q", name, content)
		}
	}
	for _, f := range Functions() {
		if takesAddress := strings.Contains(f.Name, "get") || strings.Contains(f.Name, "path_") || strings.Contains(f.Name, "read"); takesAddress &&
			!tested[f.Name] && f.Name != "args_get" && f.Name != "environ_get" {
			t.Errorf("%s is not tested", f.Name)
		}
	}
}

func TestPiecesAreChecked(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	fd := w.mustOpen("/workspace/f", openCreate, both)
	list := func(address, length uint32) uint32 { at, _ := w.pieces(address, length); return at }
	end := uint32(len(w.memory))
	for _, x := range []struct {
		name            string
		address, length uint32
	}{
		{"one that begins behind the end", end + 1, 0},
		{"one that ends behind the end", end - 4, 5},
		{"one whose end overflows", math.MaxUint32, 2},
		{"one of negative length", 8, math.MaxUint32},
	} {
		t.Run(x.name, func(t *testing.T) {
			w.t = t
			for _, fd := range []int{fd, 1} {
				w.want(w.call("fd_write", fd, list(x.address, x.length), 1, out), efault)
			}
			w.want(w.call("fd_read", fd, list(x.address, x.length), 1, out), efault)
			w.want(w.call("fd_pread", fd, list(x.address, x.length), 1, 0, out), efault)
			w.want(w.call("fd_pwrite", fd, list(x.address, x.length), 1, 0, out), efault)
		})
	}
	w.t = t
	for _, count := range []int{maxVectors + 1, 1 << 29, math.MaxUint32} {
		for _, fd := range []int{0, 1, fd} {
			w.want(w.call("fd_write", fd, 512, count, out), einval)
			w.want(w.call("fd_read", fd, 512, count, out), einval)
		}
	}
	w.ok(w.call("fd_write", fd, 512, 0, out))
	w.ok(w.call("fd_read", fd, 512, 0, out))
}

// TestAListThatIsOverwrittenWhileItIsReadStaysInside reads a file over the
// list of the pieces to read into.
func TestAListThatIsOverwrittenWhileItIsReadStaysInside(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	w.create("/workspace/f", strings.Repeat("\xff", 100))
	fd := w.mustOpen("/workspace/f", 0, reading)
	at := w.put(make([]byte, 24))
	copy(w.memory[at:], []byte{byte(at), byte(at >> 8), 0, 0, 24, 0, 0, 0})
	w.ok(w.call("fd_read", fd, at, 3, out))
	if n := w.u32at(out); n != 24 {
		t.Errorf("%d bytes were read", n)
	}
}

func TestOneTransferIsLimited(t *testing.T) {
	var printed int
	g := newGuest(t, Config{Stdout: func(p []byte) { printed += len(p) }})
	g.memory = make([]byte, 2<<20)
	for i := range maxVectors {
		g.memory[8*i+6] = 32 // 2 MiB from address 0
	}
	g.ok(g.call("fd_write", 1, 0, maxVectors, 1<<20))
	if printed != maxTransfer || g.u32at(1<<20) != maxTransfer {
		t.Errorf("%d bytes were printed, and %d reported", printed, g.u32at(1<<20))
	}
}

func TestBadNumbersAreRefused(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	w.create("/workspace/f", "content")
	fd := w.mustOpen("/workspace/f", 0, both)
	folder := w.mustOpen("/workspace", openFolder, both)
	list, _ := w.pieces(buffer, 4)
	negative := uint64(math.MaxUint64)
	for _, x := range []struct {
		name   string
		call   string
		params []any
		want   errno
	}{
		{"a negative offset to read at", "fd_pread", []any{fd, list, 1, negative, out}, einval},
		{"a negative offset to write at", "fd_pwrite", []any{fd, list, 1, negative, out}, einval},
		{"an offset whose end overflows, to read at", "fd_pread", []any{fd, list, 1, math.MaxInt64, out}, einval},
		{"an offset whose end overflows, to write at", "fd_pwrite", []any{fd, list, 1, math.MaxInt64 - 1, out}, efbig},
		{"a seek before the beginning", "fd_seek", []any{fd, negative, 0, out}, einval},
		{"a seek far before the beginning", "fd_seek", []any{fd, uint64(1) << 63, 1, out}, einval},
		{"a seek whose end overflows", "fd_seek", []any{fd, math.MaxInt64, 2, out}, einval},
		{"a seek from nowhere", "fd_seek", []any{fd, 0, 3, out}, einval},
		{"a seek in a stream", "fd_seek", []any{0, 0, 0, out}, espipe},
		{"a seek in a folder", "fd_seek", []any{folder, 0, 0, out}, eisdir},
		{"the offset of a stream", "fd_tell", []any{1, out}, espipe},
		{"reading at an offset of a stream", "fd_pread", []any{0, list, 1, 0, out}, espipe},
		{"writing at an offset of a stream", "fd_pwrite", []any{1, list, 1, 0, out}, espipe},
		{"a negative size", "fd_filestat_set_size", []any{fd, negative}, einval},
		{"a size for a stream", "fd_filestat_set_size", []any{1, 0}, einval},
		{"a size for a folder", "fd_filestat_set_size", []any{folder, 0}, eisdir},
		{"room of negative length", "fd_allocate", []any{fd, 0, negative}, einval},
		{"room at a negative offset", "fd_allocate", []any{fd, negative, 1}, einval},
		{"room of no length", "fd_allocate", []any{fd, 0, 0}, einval},
		{"room whose end overflows", "fd_allocate", []any{fd, math.MaxInt64, math.MaxInt64}, efbig},
		{"unknown advice", "fd_advise", []any{fd, 0, 0, 6}, einval},
		{"advice on a stream", "fd_advise", []any{1, 0, 0, 0}, espipe},
		{"syncing a stream", "fd_sync", []any{1}, einval},
		{"reading a folder", "fd_read", []any{folder, list, 1, out}, eisdir},
		{"writing to a folder", "fd_write", []any{folder, list, 1, out}, eisdir},
		{"writing to stdin", "fd_write", []any{0, list, 1, out}, ebadf},
		{"reading from stdout", "fd_read", []any{1, list, 1, out}, ebadf},
		{"a path from a file", "path_filestat_get", []any{fd, 0, "x", out}, enotdir},
		{"a path from a stream", "path_filestat_get", []any{0, 0, "x", out}, enotdir},
		{"unknown lookup flags", "path_filestat_get", []any{rootFD, 2, "x", out}, einval},
		{"unknown lookup flags to open", "path_open", []any{rootFD, 2, "x", 0, 0, 0, 0, out}, einval},
		{"unknown flags to open", "path_open", []any{rootFD, 0, "x", 16, 0, 0, 0, out}, einval},
		{"unknown descriptor flags to open", "path_open", []any{rootFD, 0, "x", 0, 0, 0, 32, out}, einval},
		{"unknown lookup flags to link", "path_link", []any{rootFD, 2, "x", rootFD, "y"}, einval},
		{"making a folder with path_open", "path_open", []any{rootFD, 0, "workspace/new", openCreate | openFolder, 0, 0, 0, out}, einval},
		{"a file where a folder is asked for", "path_open", []any{rootFD, 0, "workspace/f", openFolder, 0, 0, 0, out}, enotdir},
		{"a folder to write to", "path_open", []any{rootFD, 0, "workspace", 0, both, 0, 0, out}, eisdir},
		{"a signal", "proc_raise", []any{9}, enotsup},
		{"a socket to accept from", "sock_accept", []any{0, 0, 0}, enotsup},
		{"a socket to receive from", "sock_recv", []any{0, 0, 0, 0, 0, 0}, enotsup},
		{"a socket to send to", "sock_send", []any{0, 0, 0, 0, 0}, enotsup},
		{"a socket to shut down", "sock_shutdown", []any{0, 0}, enotsup},
	} {
		t.Run(x.name, func(t *testing.T) {
			w.t = t
			w.want(w.call(x.call, x.params...), x.want)
		})
	}
}

func TestDescriptorsThatAreNotOpen(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	fd := w.mustOpen("/workspace/f", openCreate, both)
	w.close(fd)
	for _, f := range Functions() {
		if !strings.HasPrefix(f.Name, "fd_") && !strings.HasPrefix(f.Name, "path_") {
			continue
		}
		for _, fd := range []uint64{uint64(fd), MaxDescriptors, math.MaxInt32, math.MaxUint32} {
			stack := make([]uint64, len(f.Params))
			for i := range stack {
				stack[i] = out
			}
			stack[0] = fd
			switch f.Name {
			case "path_symlink":
				stack[0], stack[1], stack[2] = buffer, 1, fd
				w.memory[buffer] = 'x'
			case "path_link", "path_open", "path_filestat_get", "path_filestat_set_times":
				stack[1], stack[4], stack[len(stack)-1], stack[len(stack)-2] = 0, 0, 0, 0
			}
			f.Call(w.System, w.memory, stack)
			if errno(stack[0]) != ebadf {
				t.Errorf("%s of %d: errno %d", f.Name, fd, stack[0])
			}
		}
	}
}

func TestPathsAreResolvedByTheirText(t *testing.T) {
	w := newWorld(t, noSpaceLimit)
	g := w.guest
	g.create("/workspace/f", "content")
	g.ok(g.call("path_create_directory", rootFD, "/workspace/sub"))
	sub := g.mustOpen("/workspace/sub", openFolder, both)
	long := strings.Repeat("x", maxName)
	for _, x := range []struct {
		fd   int
		path string
		want errno
	}{
		{rootFD, "/workspace/f", success},
		{rootFD, "//workspace//f", success},
		{rootFD, "./workspace/./f", success},
		{rootFD, "../../../workspace/f", success}, // the root is its own parent
		{rootFD, "/workspace/sub/../f", success},
		{rootFD, "/workspace/none/../f", success},
		{rootFD, "/lib/python/../../workspace/f", success},
		{sub, "../f", success},
		{sub, "/workspace/f", success},
		{sub, "../../../../app/f", success},
		{rootFD, "/workspace/../secret", enoent},
		{rootFD, "/../secret", enoent},
		{sub, "../../secret", enoent},
		{rootFD, "/etc/passwd", enoent},
		{rootFD, "/workspacef", enoent},
		{rootFD, "/workspace/f/", enotdir},
		{rootFD, "/workspace/f/.", enotdir},
		{rootFD, "/workspace/f/x", enotdir},
		{rootFD, "/workspace/sub/", success},
		{rootFD, "", enoent},
		{rootFD, "/workspace/f\x00", einval},
		{rootFD, "/workspace/\x00/../f", einval},
		{rootFD, "/workspace/" + long, enoent},
		{rootFD, "/workspace/" + long + "x", enametoolong},
		{rootFD, "/workspace/" + long + "x/../f", enametoolong},
		{rootFD, strings.Repeat("/", maxPath-12) + "workspace/f", success},
		{rootFD, strings.Repeat("/", maxPath-10) + "workspace/f", enametoolong},
		{rootFD, "/workspace" + strings.Repeat("/a", maxDepth), enametoolong},
		{rootFD, strings.Repeat("a/", maxDepth+1), enametoolong},
	} {
		if e := g.call("path_filestat_get", x.fd, follow, x.path, out); e != x.want {
			t.Errorf("%.60q: errno %d, not %d", x.path, e, x.want)
		}
	}
	if e := g.call("path_filestat_get", rootFD, 0, 0, math.MaxUint32, out); e != enametoolong {
		t.Errorf("a path of negative length: errno %d", e)
	}
}

func TestMountsThatCannotBe(t *testing.T) {
	archive := archiveOf(fstest.MapFS{})
	dir := newDir(t, t.TempDir(), 0, false)
	for name, mounts := range map[string][]Mount{
		"one at the root":                  {{Guest: "/", Dir: dir}},
		"one at a relative path":           {{Guest: "workspace", Dir: dir}},
		"one at a path that is not clean":  {{Guest: "/a/../b", Dir: dir}},
		"one without a tree":               {{Guest: "/a"}},
		"one with two trees":               {{Guest: "/a", Dir: dir, Archive: archive}},
		"two at one path":                  {{Guest: "/a", Dir: dir}, {Guest: "/b", Aliases: []string{"/a"}, Archive: archive}},
		"one inside another":               {{Guest: "/a", Dir: dir}, {Guest: "/a/b/c", Archive: archive}},
		"one inside another's alias":       {{Guest: "/a", Aliases: []string{"/b"}, Dir: dir}, {Guest: "/b/c", Archive: archive}},
		"one whose alias is inside itself": {{Guest: "/a", Aliases: []string{"/a/a"}, Dir: dir}},
	} {
		if _, err := New(Config{Mounts: mounts}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(Config{Env: []string{"A=\x00"}}); err == nil {
		t.Error("a zero byte in the environment: no error")
	}
}

func TestExitUnwinds(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	defer func() {
		if e, ok := recover().(*ExitError); !ok || e.Code != 3 || e.Error() == "" {
			t.Errorf("the panic's value is %v", e)
		}
		g.ok(g.call("sched_yield")) // the System stays usable
	}()
	g.call("proc_exit", 3)
	t.Error("proc_exit returned")
}

func TestStreams(t *testing.T) {
	var printed, errors bytes.Buffer
	input, open := "abc", true
	g := newGuest(t, Config{
		Stdout: func(p []byte) { printed.Write(p) }, Stderr: func(p []byte) { errors.Write(p) },
		Stdin: func(p []byte) (int, bool) {
			n := copy(p, input)
			input = input[n:]
			return n, open
		},
	})
	for fd, s := range []string{1: "out", 2: "err"} {
		if fd > 0 {
			n, e := g.write(fd, s)
			g.ok(e)
			if n != 3 {
				t.Errorf("%d bytes", n)
			}
		}
	}
	if printed.String() != "out" || errors.String() != "err" {
		t.Errorf("%q and %q", printed.String(), errors.String())
	}
	for _, want := range []string{"ab", "c", ""} {
		if s, e := g.read(0, 2); s != want || e != success {
			t.Errorf("%q, %d; not %q", s, e, want)
		}
	}
	open = false
	if _, e := g.read(0, 2); e != eintr {
		t.Errorf("when interrupted: errno %d", e)
	}
	g.close(1)
	if _, e := g.write(1, "x"); e != ebadf {
		t.Errorf("errno %d", e)
	}
	silent := newGuest(t, Config{})
	if s, e := silent.read(0, 10); s != "" || e != success {
		t.Errorf("without input: %q, %d", s, e)
	}
	if n, e := silent.write(1, "x"); n != 1 || e != success {
		t.Errorf("without output: %d, %d", n, e)
	}
}

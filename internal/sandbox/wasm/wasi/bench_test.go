package wasi

import (
	"testing"
	"testing/fstest"
)

// prepared is a call that can be repeated without laying its parameters down
// again.
func (g *guest) prepared(name string, params ...uint64) func() {
	f := byFunctionName[name]
	stack := make([]uint64, len(params))
	return func() {
		copy(stack, params)
		f.Call(g.System, g.memory, stack)
		if stack[0] != 0 {
			g.t.Fatalf("%s: errno %d", name, stack[0])
		}
	}
}

func BenchmarkCalls(b *testing.B) {
	w := newWorld(b, noSpaceLimit)
	w.create("/workspace/f", "content")
	fd := uint64(w.mustOpen("/workspace/f", 0, both))
	const name, module, folder, list = 2048, 2080, 2112, 2144
	copy(w.memory[name:], "workspace/f")
	copy(w.memory[module:], "lib/python/json/decoder.py")
	copy(w.memory[folder:], "workspace")
	copy(w.memory[list:], []byte{0, 0, 2, 0, 64, 0, 0, 0}) // 64 bytes at buffer
	open := w.prepared("path_open", rootFD, follow, name, 11, 0, both, both, 0, out)
	closeIt := w.prepared("fd_close", fd+1)
	openModule := w.prepared("path_open", rootFD, follow, module, 26, 0, reading, reading, 0, out)
	for _, x := range []struct {
		name string
		call func()
	}{
		{"clock_time_get", w.prepared("clock_time_get", clockMonotonic, 0, out)},
		{"fd_write to stdout", w.prepared("fd_write", 1, list, 1, out)},
		{"fd_write to a file", w.prepared("fd_write", fd, list, 1, out)},
		{"fd_pread from a file", w.prepared("fd_pread", fd, list, 1, 0, out)},
		{"fd_filestat_get", w.prepared("fd_filestat_get", fd, out)},
		{"path_filestat_get in a folder", w.prepared("path_filestat_get", rootFD, follow, name, 11, out)},
		{"path_filestat_get in the library", w.prepared("path_filestat_get", rootFD, follow, module, 26, out)},
		{"path_open and fd_close in a folder", func() { open(); closeIt() }},
		{"path_open and fd_close in the library", func() { openModule(); closeIt() }},
	} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.call()
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	archive := archiveOf(fstest.MapFS{"os.py": {Data: []byte("import sys\n")}})
	dir := newDir(b, b.TempDir(), noSpaceLimit, false)
	config := Config{Mounts: []Mount{{Guest: "/lib/python", Archive: archive}, {Guest: "/workspace", Aliases: []string{"/app"}, Dir: dir}}}
	b.ReportAllocs()
	for b.Loop() {
		s, err := New(config)
		must(b, err)
		must(b, s.Close())
	}
}

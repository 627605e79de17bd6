package wasi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkFiles is what the calls on a folder's files cost, at its top and
// two folders below, each beside what the host takes for the same by its whole
// path: "x-host" is how many times that.
func BenchmarkFiles(b *testing.B) {
	for _, folder := range []string{"", "one/two/"} {
		w := newWorld(b, noSpaceLimit)
		host := filepath.Join(w.host, folder)
		must(b, os.MkdirAll(host, 0o755))
		for i := range 300 {
			must(b, os.WriteFile(filepath.Join(host, fmt.Sprintf("small-%03d.txt", i)), []byte("content"), 0o644))
		}
		in := func(name string) string { return filepath.Join(host, name) }
		const name, other, itself, piece = 2048, 2304, 2560, 2816
		path := func(at int, base string) (address, length uint64) {
			return uint64(at), uint64(copy(w.memory[at:], "workspace/"+folder+base))
		}
		a, n := path(name, "small-007.txt")
		o, k := path(other, "new")
		f, m := path(itself, "")
		copy(w.memory[piece:], []byte{0, 0, 2, 0, 64, 0, 0, 0}) // 64 bytes at buffer
		const free = rootFD + 1                                 // the descriptor that an open gives
		shut := w.prepared("fd_close", free)
		open := w.prepared("path_open", rootFD, follow, a, n, 0, reading, reading, 0, out)
		read := w.prepared("fd_read", free, piece, 1, out)
		create := w.prepared("path_open", rootFD, follow, o, k, openCreate|openTruncate, writing, writing, 0, out)
		write := w.prepared("fd_write", free, piece, 1, out)
		unlink := w.prepared("path_unlink_file", rootFD, o, k)
		there := w.prepared("path_rename", rootFD, a, n, rootFD, o, k)
		back := w.prepared("path_rename", rootFD, o, k, rootFD, a, n)
		openFolderItself := w.prepared("path_open", rootFD, follow, f, m, openFolder, reading, reading, 0, out)
		list := w.prepared("fd_readdir", free, buffer, 64<<10, 0, out)
		mkdir, rmdir := w.prepared("path_create_directory", rootFD, o, k), w.prepared("path_remove_directory", rootFD, o, k)
		for _, x := range []struct {
			name       string
			ours, host func()
		}{
			{"stat", w.prepared("path_filestat_get", rootFD, follow, a, n, out), func() { _, err := os.Stat(in("small-007.txt")); must(b, err) }},
			{"read", func() { open(); read(); shut() }, func() { _, err := os.ReadFile(in("small-007.txt")); must(b, err) }},
			{"create, write, remove", func() { create(); write(); shut(); unlink() }, func() {
				must(b, os.WriteFile(in("new"), w.memory[:64], 0o666))
				must(b, os.Remove(in("new")))
			}},
			{"rename, twice", func() { there(); back() }, func() {
				must(b, os.Rename(in("small-007.txt"), in("new")))
				must(b, os.Rename(in("new"), in("small-007.txt")))
			}},
			{"create and remove a folder", func() { mkdir(); rmdir() }, func() { must(b, os.Mkdir(in("new"), 0o777)); must(b, os.Remove(in("new"))) }},
			{"list", func() { openFolderItself(); list(); shut() }, func() { _, err := os.ReadDir(host); must(b, err) }},
			{"count", func() { w.dir.Changed(); mkdir(); rmdir() }, func() {
				must(b, filepath.Walk(w.host, func(_ string, _ os.FileInfo, err error) error { return err }))
			}},
		} {
			b.Run(fmt.Sprintf("%s/%s", x.name, map[bool]string{true: "top", false: "deep"}[folder == ""]), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					x.ours()
				}
				ours, begin := b.Elapsed(), time.Now()
				for range b.N {
					x.host()
				}
				b.ReportMetric(float64(ours)/float64(time.Since(begin)), "x-host")
			})
		}
	}
}

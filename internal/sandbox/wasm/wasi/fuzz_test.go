package wasi

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzCall lets a guest call whatever it wants: data is a row of calls, each
// the number of a function and its parameters, and then the memory. It may end
// by proc_exit; it may not panic otherwise, and may change nothing outside of
// its folder.
func FuzzCall(f *testing.F) {
	functions := Functions()
	number := map[string]byte{}
	for i, x := range functions {
		number[x.Name] = byte(i)
	}
	seed := func(memory string, calls ...any) {
		var b []byte
		for _, p := range calls {
			switch p := p.(type) {
			case string:
				b = append(b, number[p])
			case int:
				b = binary.LittleEndian.AppendUint64(b, uint64(p))
			}
		}
		f.Add(b, []byte(memory))
	}
	seed("workspace/f\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00",
		"path_open", rootFD, 1, 0, 11, openCreate, both, both, 0, 64, "fd_write", 4, 12, 1, 72, "fd_seek", 4, 0, 0, 64,
		"fd_read", 4, 12, 1, 72, "fd_allocate", 4, 100, 200, "fd_close", 4)
	seed("workspace/../../secret", "path_open", rootFD, 1, 0, 22, openCreate|openTruncate, both, both, 0, 64, "path_unlink_file", rootFD, 0, 22)
	seed("../secretworkspace/link", "path_symlink", 0, 9, rootFD, 9, 14, "path_open", rootFD, 1, 9, 14, openTruncate, both, both, 0, 64,
		"path_rename", rootFD, 9, 14, rootFD, 0, 9, "path_readlink", rootFD, 9, 14, 0, 100, 64)
	seed("workspace", "path_open", rootFD, 1, 0, 9, openFolder, both, both, 0, 64, "fd_readdir", 4, 0, 60, 0, 64, "fd_renumber", 4, 3, "fd_renumber", 4, 1)
	seed("\x00", "poll_oneoff", 0, 64, 1, 512, "random_get", 0, 9000, "fd_fdstat_get", 1, 0, "proc_exit", 1)

	f.Fuzz(func(t *testing.T, calls, memory []byte) {
		w := newWorld(t, 64<<10)
		// Whatever waits is interrupted at once.
		interrupted := make(chan struct{})
		close(interrupted)
		w.config.Interrupted = func() <-chan struct{} { return interrupted }
		must(t, os.WriteFile(filepath.Join(w.host, "f"), []byte("content"), 0o644))
		_ = os.Symlink("../secret", filepath.Join(w.host, "l")) // where it can be made
		outside := w.outside()
		w.memory = make([]byte, 8<<10)
		copy(w.memory, memory)
		rest := calls
		take := func() (v uint64) {
			var b [8]byte
			rest = rest[copy(b[:], rest):]
			return binary.LittleEndian.Uint64(b[:])
		}
		for n := 0; len(rest) > 0 && n < 64; n++ {
			x := functions[int(rest[0])%len(functions)]
			rest = rest[1:]
			stack := make([]uint64, max(len(x.Params), 1))
			for i := range x.Params {
				stack[i] = take()
			}
			if exited(w.System, x, w.memory, stack) {
				break
			}
		}
		b := w.Save()
		if _, err := w.again(t).Restore(b); err != nil {
			t.Errorf("what was saved cannot be restored: %v", err)
		}
		after := w.outside()
		if len(after) != len(outside) {
			t.Errorf("outside there are now %v", after)
		}
		for name, content := range outside {
			if after[name] != content {
				t.Errorf("%s outside is now %q", name, after[name])
			}
		}
		if strings.Contains(string(w.memory), secret) && !strings.Contains(string(memory), secret) {
			t.Error("the secret was read")
		}
		if count := w.dir.used; w.dir.counted {
			w.dir.countLocked()
			if count < w.dir.used {
				t.Errorf("%d bytes were counted where there are %d", count, w.dir.used)
			}
		}
	})
}

// exited calls x and tells whether it unwound the guest.
func exited(s *System, x Function, memory []byte, stack []uint64) (exited bool) {
	defer func() {
		if v := recover(); v != nil {
			if _, exited = v.(*ExitError); !exited {
				panic(v)
			}
		}
	}()
	x.Call(s, memory, stack)
	return false
}

//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/sandbox"
)

// held are the memory files and the sockets that a process has open.
func held(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("the files of process %d: %v, %v", pid, links, err)
	}
	all := map[string]bool{}
	for _, link := range links {
		name, err := os.Readlink(link)
		switch {
		case err != nil: // it is closed
		case strings.HasPrefix(name, "socket:"):
			all[name] = true
		case strings.HasPrefix(name, "/memfd:"):
			if info, err := os.Stat(link); err == nil {
				all[fmt.Sprint(name, info.Sys().(*syscall.Stat_t).Ino)] = true
			}
		}
	}
	return all
}

func TestABoxHasNothingOfAnother(t *testing.T) {
	b := newBackend(t)
	for n := range 3 {
		in, err := b.Start(t.Context(), sandbox.Spec{Owner: fmt.Sprint("owner", n), Runtime: "bash"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
	}
	whose := map[string]string{} // of a file: the box
	b.mu.Lock()
	defer b.mu.Unlock()
	for m := range b.all {
		for _, part := range []*part{m.box.sentry, m.box.gofer} {
			for file := range held(t, part.cmd.Process.Pid) {
				if before := whose[file]; before != "" && before != m.key {
					t.Errorf("%s is open in the boxes of %q and of %q", file, before, m.key)
				}
				whose[file] = m.key
			}
		}
	}
	if len(whose) == 0 {
		t.Error("the boxes have no memory and no sockets")
	}
}

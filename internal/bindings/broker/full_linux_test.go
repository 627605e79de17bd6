package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func TestOnAFullDiskThereAreOldFilesOrNone(t *testing.T) {
	disk := sandboxtest.SmallDisk(t, 2)
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: filepath.Join(disk, "state")})
	dir, filler := filepath.Join(disk, "servers"), filepath.Join(disk, "filler")
	mustProvide(t, b, alice, dir)
	old := contents(t, dir)
	sandboxtest.FillDisk(t, filler)
	for i := range 40 {
		c.grow(fmt.Sprint("more-", i))
	}
	var failed error
	eventually(t, "an error", func() bool {
		failed = b.Provide(t.Context(), alice, dir)
		return failed != nil
	})
	if !errors.Is(failed, syscall.ENOSPC) {
		t.Errorf("it fails with %v", failed)
	}
	if got := contents(t, dir); fmt.Sprint(got) != fmt.Sprint(old) {
		t.Errorf("there are %d files, and not the %d old ones", len(got), len(old))
	}
	fresh := filepath.Join(disk, "fresh")
	if err := b.Provide(t.Context(), Session{"alice", "s-2"}, fresh); err == nil {
		t.Error("a new session's files are there")
	}
	if got := contents(t, fresh); len(got) != 0 {
		t.Errorf("a new session has %d files", len(got))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustProvide(t, b, alice, dir)
	if got := contents(t, dir); got["party/more_39.py"] == "" {
		t.Errorf("with room again there are %d files", len(got))
	}
}

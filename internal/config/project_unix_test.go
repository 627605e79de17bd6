//go:build unix

package config

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestAPipeInTheWorkingFolderIsNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "paddock.toml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	c, err := Load(Source{Project: pipe, Trusted: func(string, []byte) bool { return true }})
	if err != nil {
		t.Errorf("got error %v, want none", err)
	} else if c.File != "" {
		t.Errorf(`c.File = %q, want ""`, c.File)
	}
	if _, err := ReadProject(pipe); err == nil {
		t.Error("a pipe is read")
	}
}

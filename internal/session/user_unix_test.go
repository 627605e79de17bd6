//go:build unix

package session_test

import (
	"io/fs"
	"syscall"
)

func userOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

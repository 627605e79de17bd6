//go:build !unix

package wasi

import "io/fs"

const nonblock = 0

func systemStat(*stat, fs.FileInfo) {}

func links(fs.FileInfo) uint64 { return 1 }

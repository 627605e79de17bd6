//go:build !linux && !darwin

package workspace

import "io/fs"

func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
}

// namesOf is how many names the file has, as far as can be told cheaply: links to
// one file are not told apart here.
func namesOf(fs.FileInfo) uint64 { return 1 }

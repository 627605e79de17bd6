package cli

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"
)

// stampOf changes when a file of a program's folder does. Of a folder that is too large only
// the program counts.
func (cl *cli) stampOf(ctx context.Context, file string) uint64 {
	dir, name := filepath.Dir(file), filepath.Base(file)
	sum := fnv.New64a()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0
	}
	defer root.Close()
	files, err := cl.folderFiles(ctx, root)
	if err != nil {
		files = nil
	}
	for _, p := range append(files, name) {
		if info, err := root.Stat(filepath.FromSlash(p)); err == nil {
			fmt.Fprintln(sum, p, info.Size(), info.ModTime().UnixNano())
		}
	}
	return sum.Sum64()
}

// waitForChange returns once a file of the program's folder is another than it was; false:
// ctx has ended.
func (cl *cli) waitForChange(ctx context.Context, file string, was uint64) bool {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
		if cl.stampOf(ctx, file) != was && ctx.Err() == nil {
			return true
		}
	}
}

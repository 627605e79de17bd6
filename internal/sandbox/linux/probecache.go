//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/sandbox"
)

// How long what a canary found out counts, also for other processes: what works is as
// good as the machine is up, and what does not may be mended at any time, as the hint
// says how. Where it took long to fail, finding out again is what costs.
const (
	goodFor     = 24 * time.Hour
	badFor      = 10 * time.Second
	badForTimes = 4 // as long as it took
)

const probePrefix = "linux-probe-"

// findings are what Probe remembers in the cache folder.
type findings struct {
	At    time.Time     `json:"at"`
	Took  time.Duration `json:"took"`
	Probe sandbox.Probe `json:"probe"`
}

// count tells whether they still do.
func (f *findings) count() bool {
	limit := max(badFor, badForTimes*f.Took)
	if f.Probe.Available {
		limit = goodFor
	}
	age := time.Since(f.At)
	return age >= 0 && age < limit
}

// remembered gives what a process found out lately that is like this one, on this
// machine since it was booted. path is where to remember it; empty: nowhere.
func (b *Backend) remembered(ctx context.Context) (f findings, path string, ok bool) {
	if path = b.probePath(ctx); path == "" {
		return f, "", false
	}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &f) != nil {
		return f, path, false
	}
	return f, path, f.count()
}

// remember writes what was found out, and forgets what is old. What cannot be
// written is found out again.
func (b *Backend) remember(path string, f findings) {
	data, err := json.Marshal(f)
	if err != nil || path == "" {
		return
	}
	dir := filepath.Dir(path)
	old, _ := filepath.Glob(filepath.Join(dir, probePrefix+"*"))
	for _, name := range old {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > goodFor {
			_ = os.Remove(name) // another process may have
		}
	}
	_ = atomicfile.WriteFile(path, data, atomicfile.Options{Prefix: probePrefix + "new-"})
}

// probePath names all that the findings depend on: the machine since its boot, this
// program, who it is, what boxes are made of, and the image.
func (b *Backend) probePath(ctx context.Context) string {
	if b.config.CacheDir == "" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	self, err := os.Stat(executable)
	if err != nil {
		return ""
	}
	stat, ok := self.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	image := b.config.Image
	if b.config.Images != nil && image != HostImage {
		found, err := b.config.Images(ctx, image)
		if err != nil {
			return "" // it may be there at any time
		}
		if found.Release != nil {
			defer found.Release()
		}
		image = found.Dir
	}
	c := b.config
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %d %d %s %d %d %g %d %d %d", strings.TrimSpace(string(boot)), stat.Dev, stat.Ino, stat.Size, stat.Mtim.Nano(),
		os.Geteuid(), image, c.UID, c.GID, c.CPUs, c.Processes, c.OpenFiles, c.RootBytes))
	return filepath.Join(b.config.CacheDir, probePrefix+hex.EncodeToString(sum[:12]))
}

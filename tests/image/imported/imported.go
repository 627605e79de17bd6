// Package imported gives tests the images that tests/image/build.sh makes as paddock has
// them once they were imported: unpacking one takes longer, and more of the disk, than most
// of what is done in it.
package imported

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/lock"
	"paddock/internal/sandbox/sandboxtest"
)

// Full is what the image with numpy, pandas, Node, git and a compiler is called.
const Full = "full"

// sources are what decides how an imported image lies on the disk, from the root of the
// module: where one of them is changed, it is imported again.
var sources = []string{"internal/image/*.go", "internal/blob/*.go", "internal/cli/cmd_image.go", "internal/app/images.go", "tests/image/imported/imported.go"}

// keptFor is how long an import is kept that nobody uses: other checkouts have their own.
const keptFor = 24 * time.Hour

// Folder gives a paddock's folder of images with [Full] in it. It is shared with other
// tests, also those of other processes, and kept between runs: nobody may import, pull or
// remove there. The first to ask has the built paddock import the image, as its users
// do. Where images cannot be built the test is skipped, as [sandboxtest.Require] does.
func Folder(t testing.TB) string {
	t.Helper()
	sandboxtest.Require(t, "images", os.Geteuid() == 0, "only root can build the test images")
	root := moduleRoot(t)
	build := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", filepath.Join(root, "tests", "image", "build.sh"))
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("building the test images: %v", err)
	}
	layouts := strings.TrimSpace(string(out))
	dir := filepath.Join(sandboxtest.BuildCache(t), "imported-"+digest(t, root, filepath.Base(layouts)))
	unlock, err := lock.AcquireIn(context.WithoutCancel(t.Context()), filepath.Join(sandboxtest.BuildCache(t), "imported.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if now := time.Now(); os.Chtimes(dir, now, now) == nil {
		return filepath.Join(dir, "images")
	}
	forget(t)
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil { // of one that was killed
		t.Fatal(err)
	}
	add := exec.CommandContext(context.WithoutCancel(t.Context()), sandboxtest.Binary(t), "image", "import", filepath.Join(layouts, Full), "--name", Full)
	add.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+fresh, "PADDOCK_CONFIG=")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("importing the test image: %v: %s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "images")
}

// Link gives a paddock's state folder, which is made, these images.
func Link(t testing.TB, state string) {
	t.Helper()
	images := Folder(t)
	err := os.MkdirAll(state, 0o700)
	if err == nil {
		err = os.Symlink(images, filepath.Join(state, "images"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moduleRoot is the folder above the test's that has the module's file.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("the test runs outside of the module")
	return ""
}

// digest is of the images and of the sources.
func digest(t testing.TB, root, images string) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintln(sum, images)
	for _, pattern := range sources {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s names no file: %v", pattern, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(sum, filepath.Base(path), len(data))
			sum.Write(data)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// forget removes imports that nobody has asked for lately.
func forget(t testing.TB) {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(sandboxtest.BuildCache(t), "imported-*"))
	for _, dir := range all {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = os.RemoveAll(dir) // or the next one does
		}
	}
}

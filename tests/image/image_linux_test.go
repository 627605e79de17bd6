// Package image pulls the images that tests/image/build.sh makes from a registry
// on loopback, as a user would.
package image

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"paddock/internal/image"
	"paddock/internal/sandbox/sandboxtest"
)

// built is the folder with the images' layouts.
func built(t *testing.T) string {
	t.Helper()
	sandboxtest.Require(t, "images", os.Geteuid() == 0, "only root can build the test images")
	cmd := exec.CommandContext(t.Context(), "bash", "build.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// serve puts the images into registries on loopback, and gives their addresses. What the
// layouts hold already is served from where it lies.
func serve(t *testing.T, dir string) map[string]string {
	t.Helper()
	hosts := map[string]string{}
	for _, called := range []string{"small", "full"} {
		blobs := registry.NewDiskBlobHandler(filepath.Join(dir, called, "blobs"))
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(blobs)))
		t.Cleanup(server.Close)
		hosts[called] = strings.TrimPrefix(server.URL, "http://")
		index, err := layout.ImageIndexFromPath(filepath.Join(dir, called))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(hosts[called] + "/" + called + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
	}
	return hosts
}

// inMemory is an empty folder, in memory where that can be had: to write the images upon a
// disk, and to remove them from it, takes longer than all else.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("images", dir, "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID, "mode=0755,size=4g"); err != nil {
		t.Log("upon the disk:", err)
		return dir
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// programs are what runs in an image, each with what it prints.
var programs = map[string][][2]string{
	"small": {{"python3 -c 'print(6*7)'", "42\n"}, {"echo $BASH_VERSION | cut -c1", "5\n"}},
	"full": {
		{"python3 -c 'import numpy, pandas, PIL, matplotlib; print(pandas.DataFrame({\"a\": numpy.arange(4)}).a.sum())'", "6\n"},
		{"node -e 'console.log(6*7)'", "42\n"},
		{"test -x /usr/bin/git && python3 -m pip --version | cut -c1-3", "pip\n"},
		{"ls /var/lib/leftover /var/spool/paddock/old 2>&1 | grep -c cannot", "2\n"},
	},
}

func TestTheTestImagesArePulledAndRun(t *testing.T) {
	hosts := serve(t, built(t))
	s, err := image.Open(image.Config{Dir: filepath.Join(inMemory(t), "images")})
	if err != nil {
		t.Fatal(err)
	}
	for called, all := range programs {
		t.Run(called, func(t *testing.T) {
			began := time.Now()
			img, err := s.Pull(t.Context(), image.Request{Reference: hosts[called] + "/" + called + ":1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d layers, %d MiB, %d entries, left out %+v, in %.1f s", len(img.Layers), img.Bytes>>20, img.Entries, img.LeftOut, time.Since(began).Seconds())
			if img.Bytes > 1<<30 {
				t.Errorf("it takes %d MiB", img.Bytes>>20)
			}
			r, release, err := s.Rootfs(t.Context(), hosts[called]+"/"+called+":1")
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			for _, p := range all {
				cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", p[0])
				cmd.Dir, cmd.Env = "/", append(r.Settings.Env, "PYTHONDONTWRITEBYTECODE=1", "MPLCONFIGDIR=/tmp")
				// As nobody, who can change nothing there but /tmp.
				cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.Dir, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				if out, err := cmd.CombinedOutput(); string(out) != p[1] {
					t.Errorf("%s prints %q, %v", p[0], out, err)
				}
			}
		})
	}
}

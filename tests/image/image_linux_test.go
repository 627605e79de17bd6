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

// serve puts the images into a registry on loopback, and gives its address.
func serve(t *testing.T, dir string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, called := range []string{"small", "full"} {
		index, err := layout.ImageIndexFromPath(filepath.Join(dir, called))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/" + called + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
	}
	return host
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
	host := serve(t, built(t))
	s, err := image.Open(image.Config{Dir: filepath.Join(t.TempDir(), "images")})
	if err != nil {
		t.Fatal(err)
	}
	for called, all := range programs {
		t.Run(called, func(t *testing.T) {
			began := time.Now()
			img, err := s.Pull(t.Context(), image.Request{Reference: host + "/" + called + ":1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d layers, %d MiB, %d entries, left out %+v, in %.1f s", len(img.Layers), img.Bytes>>20, img.Entries, img.LeftOut, time.Since(began).Seconds())
			if img.Bytes > 1<<30 {
				t.Errorf("it takes %d MiB", img.Bytes>>20)
			}
			r, release, err := s.Rootfs(t.Context(), host+"/"+called+":1")
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

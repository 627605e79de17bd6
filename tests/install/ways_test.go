package install

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"paddock/internal/sandbox/sandboxtest"
)

// unpack writes what a tar has below a folder, with its modes, and its owners where this
// user may.
func unpack(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		switch {
		case err != nil:
		case h.Typeflag == tar.TypeDir:
			err = os.MkdirAll(to, h.FileInfo().Mode().Perm())
		default:
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(to, content, h.FileInfo().Mode().Perm())
			}
		}
		if err == nil && os.Geteuid() == 0 {
			err = os.Lchown(to, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fromArchive unpacks the tarball. Its interpreters are compiled as on a new machine.
func fromArchive(t *testing.T, dir string) tool {
	t.Helper()
	sandboxtest.Require(t, "unix", runtime.GOOS != "windows", "the archive for Windows is a zip")
	f, err := os.Open(one(t, dir, "paddock-*-"+runtime.GOOS+"-"+runtime.GOARCH+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	unpack(t, plain, at)
	env := slices.DeleteFunc(bare(t, nil), func(v string) bool { return strings.HasPrefix(v, "PADDOCK_CACHE_DIR=") })
	return tool{[]string{one(t, at, "paddock-*/paddock")}, env}
}

// python gives the path of this machine's Python, which has pip.
func python(t *testing.T) string {
	t.Helper()
	where(t, "python", "python3")
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import pip, sys; print(sys.executable)").Output()
	sandboxtest.Require(t, "python", err == nil, "the Python of this machine has no pip")
	return strings.TrimSpace(string(out))
}

// fromUVX starts paddock by uvx, which has the wheels from the release's folder alone.
func fromUVX(t *testing.T, dir string) tool {
	t.Helper()
	uvx := where(t, "uv", "uvx")
	return tool{[]string{
		uvx, "--python", python(t), "--no-python-downloads", "--offline", "--prerelease", "allow", "--no-index", "--find-links", dir, "paddock-sandbox",
	}, bare(t, nil)}
}

// fromWheel has pip install the wheel into an environment of its own, without an index.
func fromWheel(t *testing.T, dir string) tool {
	t.Helper()
	program, at := python(t), t.TempDir()
	for _, args := range [][]string{
		{"-m", "venv", "--without-pip", at},
		{"-m", "pip", "--isolated", "--python", filepath.Join(at, "bin", "python"), "install", "--quiet", "--pre", "--no-index", "--find-links", dir, "paddock-sandbox"},
	} {
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Fatalf("python3 %q: %v\n%s", args, err, out)
		}
	}
	env := bare(t, nil)
	short := exec.CommandContext(t.Context(), filepath.Join(at, "bin", "paddock"), "version")
	short.Env = env
	if out, err := short.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "paddock ") {
		t.Errorf("the command paddock prints %q (%v)", out, err)
	}
	return tool{[]string{filepath.Join(at, "bin", "paddock-sandbox")}, env}
}

// fromImage unpacks the image and runs it as an engine would, without one.
func fromImage(t *testing.T, dir string) tool {
	t.Helper()
	_, err := exec.LookPath("unshare")
	sandboxtest.Require(t, "container", runtime.GOOS == "linux" && os.Geteuid() == 0 && err == nil, "it takes root on Linux to make a container's root")
	f, err := os.Open(one(t, dir, "paddock-*-oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, root := t.TempDir(), t.TempDir()
	unpack(t, f, at)
	index, err := layout.ImageIndexFromPath(at)
	if err != nil {
		t.Fatal(err)
	}
	image := imageFor(t, index)
	content := mutate.Extract(image)
	defer content.Close()
	unpack(t, content, root)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if name := config.Config.Entrypoint; !slices.Equal(name, []string{"/paddock"}) {
		t.Fatalf("the image starts %q", name)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return tool{[]string{"bash", filepath.Join("..", "..", "packaging", "contained.sh"), root}, os.Environ()}
}

// imageFor is the image for this machine in an index, however deep.
func imageFor(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return imageFor(t, inner)
		}
		if d.Platform != nil && d.Platform.Architecture == runtime.GOARCH {
			image, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("there is no image for %s among %+v", runtime.GOARCH, manifest.Manifests)
	return nil
}

// fromBundle unpacks the MCP bundle; the arguments are those that its manifest has a client
// start. The official tool checks the manifest.
func fromBundle(t *testing.T, dir string) tool {
	t.Helper()
	file, at := one(t, dir, "paddock-mcp-*-"+runtime.GOOS+"-"+runtime.GOARCH+".mcpb"), t.TempDir()
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		content, err := fs.ReadFile(archive, f.Name)
		to := filepath.Join(at, filepath.FromSlash(f.Name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, content, f.Mode().Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(at, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Server struct {
			Config struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	start := manifest.Server.Config
	return tool{append([]string{strings.ReplaceAll(start.Command, "${__dirname}", at)}, start.Args...), bare(t, nil)}
}

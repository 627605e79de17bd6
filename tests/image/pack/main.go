// Pack makes an OCI layout of the tar of a root file system. The files are
// spread over layers as people's images have them: the system, Python's modules,
// Node, and what was removed at last. So an image of it has whiteouts, an opaque
// folder, and layers that are compressed in different ways.
package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func main() {
	out := flag.String("out", "", "the layout's `folder`, which is made")
	root := flag.String("root", "", "the tar `file` of the root file system")
	layers := flag.Int("layers", 4, "1: all in one layer")
	flag.Parse()
	if err := pack(*out, *root, *layers > 1); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// system, modules, node and removed are the layers, the lowest first.
const (
	system = iota
	modules
	node
	removed
	layerCount
)

// layerOf says which layer a path belongs to. Hard links lead to files of their
// own folder, so none leads into another layer.
func layerOf(name string) int {
	switch {
	case strings.HasPrefix(name, "usr/lib/python3/dist-packages/"):
		return modules
	case strings.HasPrefix(name, "usr/share/nodejs/"), strings.HasPrefix(name, "usr/bin/node"), strings.Contains(name, "/libnode.so"), strings.Contains(name, "/libicudata.so"):
		return node
	}
	return system
}

func pack(out, root string, spread bool) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	files := make([]*layerFile, 1)
	if spread {
		files = make([]*layerFile, layerCount)
	}
	for i := range files {
		f, err := newLayerFile(filepath.Join(out, fmt.Sprintf("layer%d", i)), i == node)
		if err != nil {
			return err
		}
		defer os.Remove(f.path)
		files[i] = f
	}
	if err := distribute(root, files); err != nil {
		return err
	}
	img, err := image(files)
	if err != nil {
		return err
	}
	to, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	return to.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
}

// distribute copies each file into its layer.
func distribute(root string, files []*layerFile) error {
	f, err := os.Open(root)
	if err != nil {
		return err
	}
	defer f.Close()
	if len(files) > 1 {
		// As if a last step of the build had tidied up.
		for _, gone := range []string{"var/lib/.wh.leftover", "var/spool/paddock/.wh..wh..opq"} {
			if err := files[removed].tar.WriteHeader(&tar.Header{Name: gone, Mode: 0o644}); err != nil {
				return err
			}
		}
		for _, name := range []string{"var/lib/leftover", "var/spool/paddock/old"} {
			if err := files[system].tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644}); err != nil {
				return err
			}
		}
	}
	for in := tar.NewReader(bufio.NewReaderSize(f, 1<<20)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "/")
		to := files[0]
		if len(files) > 1 {
			to = files[layerOf(name)]
		}
		if err := to.tar.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to.tar, in); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := f.close(); err != nil {
			return err
		}
	}
	return nil
}

// layerFile is a layer while it is written.
type layerFile struct {
	path string
	kind types.MediaType
	file *os.File
	pack io.WriteCloser
	tar  *tar.Writer
}

func newLayerFile(path string, asZstd bool) (*layerFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &layerFile{path: path, file: file}
	if asZstd {
		l.kind = types.OCILayerZStd
		l.pack, err = zstd.NewWriter(file, zstd.WithEncoderLevel(zstd.SpeedFastest))
	} else {
		l.kind = types.OCILayer
		l.pack, err = gzip.NewWriterLevel(file, gzip.BestSpeed)
	}
	if err != nil {
		return nil, err
	}
	l.tar = tar.NewWriter(l.pack)
	return l, nil
}

func (l *layerFile) close() error {
	return errors.Join(l.tar.Close(), l.pack.Close(), l.file.Close())
}

func image(files []*layerFile) (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, f := range files {
		layer, err := tarball.LayerFromFile(f.path, tarball.WithMediaType(f.kind))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
		Cmd:        []string{"python3"},
		WorkingDir: "/",
		Labels:     map[string]string{"paddock.test": "1"},
	}
	return mutate.ConfigFile(img, c)
}

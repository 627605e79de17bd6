package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who runs in the image, as packaging/Containerfile has it.
const user = 65532

// packImage writes the image for all Linux platforms as one OCI layout in a tarball, which
// docker load, podman load and paddock image import read.
func (r *release) packImage() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range r.binaries {
		if b.goos != "linux" {
			continue
		}
		image, err := r.imageOf(b)
		if err != nil {
			return fmt.Errorf("for %s: %w", b, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.goos, Architecture: b.goarch}},
		})
	}
	if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) == 0 {
		return err
	}
	dir, err := os.MkdirTemp("", "paddock-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": "paddock:" + r.version.semver}
	if r.image != "" {
		names["io.containerd.image.name"] = r.image + ":" + r.version.semver
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	content, err := r.plainTar(os.DirFS(dir))
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("paddock-%s-oci.tar", r.version.semver), content)
}

// imageOf is what packaging/Containerfile describes, made without an engine.
func (r *release) imageOf(b binary) (v1.Image, error) {
	content, err := r.layer(b)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title": "paddock", "org.opencontainers.image.version": r.version.semver,
		"org.opencontainers.image.description": description, "org.opencontainers.image.licenses": license,
	}
	if r.name != "" {
		labels["io.modelcontextprotocol.server.name"] = r.name
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: b.goos, Architecture: b.goarch, Created: v1.Time{Time: r.time},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%d", user, user), Env: []string{"PADDOCK_STATE_DIR=/state", "PADDOCK_CACHE_DIR=/cache"},
			Entrypoint: []string{"/paddock"}, Cmd: []string{"serve", "--host", "0.0.0.0"},
			Volumes: map[string]struct{}{"/state": {}, "/cache": {}}, ExposedPorts: map[string]struct{}{"5555/tcp": {}}, Labels: labels,
		},
	}); err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "packaging/release"}})
}

// layer is the image's only layer: the binary, the certificates of the authorities that
// Mozilla's browsers believe, and two folders that volumes are mounted over.
func (r *release) layer(b binary) ([]byte, error) {
	files, err := r.texts("LICENSE", "NOTICE")
	if err != nil {
		return nil, err
	}
	files = append(files, b.program("paddock"), file{"sbom.cdx.json", 0o644, r.boms[b.String()]}, file{"etc/ssl/certs/ca-certificates.crt", 0o644, roots()})
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "cache/", Uid: user, Gid: user, Mode: 0o700}, {Name: "etc/", Mode: 0o755}, {Name: "etc/ssl/", Mode: 0o755},
		{Name: "etc/ssl/certs/", Mode: 0o755}, {Name: "state/", Uid: user, Gid: user, Mode: 0o700},
	} {
		h.Typeflag, h.ModTime, h.Format = tar.TypeDir, r.time, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	for _, f := range sorted(files) {
		if err := r.addTo(w, f); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func (r *release) addTo(w *tar.Writer, f file) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = w.Write(f.content)
	}
	return err
}

// roots are the authorities that Go's own list has without a condition.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes it
		}
	}
	return b.Bytes()
}

// plainTar packs the files of a folder without compression: its layers have theirs.
func (r *release) plainTar(dir fs.FS) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error { // in the order of names
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, path)
		if err != nil {
			return err
		}
		return r.addTo(w, file{filepath.ToSlash(path), 0o644, content})
	})
	if err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// maxNested bounds how deep indexes may lie in indexes, and maxFiles how many
// files an archive of an image may have.
const (
	maxNested = 4
	maxFiles  = 16 << 10
)

// The files that make a file or folder an image in one form or the other.
const (
	dockerManifest = "manifest.json"
	ociIndex       = "index.json"
	ociMark        = "oci-layout"
)

// files are those of an image that is in files, by their paths.
type files interface {
	// open opens one; fs.ErrNotExist: it is not there.
	open(name string) (io.ReadCloser, int64, error)
}

// folder is a folder with an OCI layout. Nothing outside of it is read.
type folder struct{ root *os.Root }

func (f folder) open(name string) (io.ReadCloser, int64, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errImage("%.200q is not an ordinary file", name)
	}
	in, err := f.root.Open(name)
	return in, info.Size(), err
}

// archive is a tar with an image's files in it.
type archive struct {
	file  io.ReaderAt
	parts map[string]part
}

// part is where a file is in an archive; elsewhere is the one that it is a link
// to.
type part struct {
	at, size  int64
	elsewhere string
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	p, ok := a.parts[name]
	if ok && p.elsewhere != "" { // docker save links to a layer that is there already
		p, ok = a.parts[p.elsewhere]
	}
	if !ok || p.elsewhere != "" {
		return nil, 0, fs.ErrNotExist
	}
	return io.NopCloser(io.NewSectionReader(a.file, p.at, p.size)), p.size, nil
}

// readArchive looks what is in a tar that is not compressed. image tells that it
// holds an image's files; else it is a root file system, and what was found is not
// complete.
func readArchive(ctx context.Context, f *os.File) (a *archive, image bool, err error) {
	a = &archive{file: f, parts: map[string]part{}}
	at := &counted{in: f}
	for r := tar.NewReader(at); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			_, docker := a.parts[dockerManifest]
			_, oci := a.parts[ociIndex]
			return a, docker || oci, nil
		case ctx.Err() != nil:
			return nil, false, context.Cause(ctx)
		case err != nil:
			return nil, false, errImage("the file is not a tar archive, or breaks off").WithCause(err)
		}
		name, err := cleanPath(h.Name)
		switch {
		case err != nil || len(a.parts) >= maxFiles:
			return a, false, nil // whoever unpacks it says what is wrong
		case h.Typeflag == tar.TypeReg && h.Size >= 0:
			a.parts[name] = part{at: at.n, size: h.Size}
		case h.Typeflag == tar.TypeSymlink:
			a.parts[name] = part{elsewhere: path.Join(path.Dir(name), h.Linkname)}
		case h.Typeflag == tar.TypeLink:
			a.parts[name] = part{elsewhere: path.Clean(h.Linkname)}
		}
	}
}

// counted is a file that knows where it is.
type counted struct {
	in *os.File
	n  int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// Seek implements [io.Seeker]: the contents of files are passed over.
func (c *counted) Seek(offset int64, whence int) (int64, error) {
	n, err := c.in.Seek(offset, whence)
	if err == nil {
		c.n = n
	}
	return n, err
}

// imageOf reads what is in an image's files.
func imageOf(f files) (*source, error) {
	if _, _, err := f.open(ociIndex); err == nil {
		return ociImage(f)
	}
	return dockerImage(f)
}

// readPart reads a small file; of a digest when one is given.
func readPart(f files, name, digest string) ([]byte, error) {
	in, size, err := f.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errImage("the file %.200q is missing in it", name)
	}
	if err != nil {
		return nil, explainPart(err)
	}
	defer in.Close()
	if size > maxConfig {
		return nil, errImage("the file %.200q in it is too long", name)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxConfig))
	if err != nil {
		return nil, explainPart(err)
	}
	if sum := sha256.Sum256(data); digest != "" && digest != digestPrefix+hex.EncodeToString(sum[:]) {
		return nil, errImage("the file %.200q in it is not what its digest says", name)
	}
	return data, nil
}

func explainPart(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	return errImage("a file of it cannot be read").WithCause(err)
}

// layersOf are the layers of a configuration, which are in those files.
func layersOf(f files, config []byte, names []string) ([]layer, error) {
	parsed, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	digests, err := layerDigests(parsed)
	if err != nil {
		return nil, err
	}
	if len(digests) != len(names) {
		return nil, errImage("it names %d layers, and its configuration %d", len(names), len(digests))
	}
	var all []layer
	for i, name := range names {
		in, size, err := f.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errImage("the layer %.200q is missing in it", name)
		}
		if err != nil {
			return nil, explainPart(err)
		}
		in.Close()
		all = append(all, layer{digest: digests[i], size: size, open: func(context.Context) (io.ReadCloser, error) {
			in, _, err := f.open(name)
			if err != nil {
				return nil, explainPart(err)
			}
			return in, nil
		}})
	}
	return all, nil
}

// dockerImage reads what docker save wrote.
func dockerImage(f files) (*source, error) {
	data, err := readPart(f, dockerManifest, "")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errImage("its %s cannot be read", dockerManifest).WithCause(err)
	}
	if len(list) != 1 {
		return nil, errImage("it holds %d images", len(list)).WithHint("save the one that is wanted by itself")
	}
	config, err := readPart(f, path.Clean(list[0].Config), "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range list[0].Layers {
		names = append(names, path.Clean(l))
	}
	layers, err := layersOf(f, config, names)
	return &source{config: config, layers: layers}, err
}

// ociImage reads an OCI layout, of which one image has to be for this machine.
func ociImage(f files) (*source, error) {
	data, err := readPart(f, ociIndex, "")
	if err != nil {
		return nil, err
	}
	manifest, digest, err := ociManifest(f, data, maxNested)
	if err != nil {
		return nil, err
	}
	config, err := readPart(f, blobOf(manifest.Config.Digest), manifest.Config.Digest.String())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range manifest.Layers {
		if !isDigest(l.Digest.String()) {
			return nil, errImage("it names a layer %.100q", l.Digest.String())
		}
		names = append(names, blobOf(l.Digest))
	}
	layers, err := layersOf(f, config, names)
	return &source{config: config, digest: digest, layers: layers}, err
}

// blobOf is where a layout has a content.
func blobOf(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// ociManifest finds the one manifest for this machine in an index, which may have
// other indexes in it.
func ociManifest(f files, index []byte, nested int) (*v1.Manifest, string, error) {
	if nested == 0 {
		return nil, "", errImage("its indexes are nested too deep")
	}
	list, err := v1.ParseIndexManifest(bytes.NewReader(index))
	if err != nil {
		return nil, "", errImage("its index cannot be read").WithCause(err)
	}
	var fit []v1.Descriptor
	for _, d := range list.Manifests {
		if p := d.Platform; p == nil || (p.OS == "" || p.OS == "linux") && (p.Architecture == "" || p.Architecture == runtime.GOARCH) {
			fit = append(fit, d)
		}
	}
	switch {
	case len(list.Manifests) > 0 && len(fit) == 0:
		return nil, "", fault.New(fault.Unsupported, "it holds no image for linux/%s", runtime.GOARCH).WithHint("use one that is made for this machine too")
	case len(fit) != 1:
		return nil, "", errImage("it holds %d images", len(fit)).WithHint("save the one that is wanted by itself")
	}
	digest := fit[0].Digest.String()
	if !isDigest(digest) {
		return nil, "", errImage("it names a manifest %.100q", digest)
	}
	data, err := readPart(f, blobOf(fit[0].Digest), digest)
	if err != nil {
		return nil, "", err
	}
	if fit[0].MediaType.IsIndex() {
		m, _, err := ociManifest(f, data, nested-1)
		return m, digest, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, "", errImage("its manifest cannot be read").WithCause(err)
	}
	return m, digest, nil
}

// openFolder opens a folder that has to be an OCI layout.
func openFolder(dir string) (folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return folder{}, blob.Explain(err, "reading an image")
	}
	f := folder{root}
	for _, name := range []string{ociIndex, ociMark} {
		in, _, err := f.open(name)
		if err != nil {
			root.Close()
			return folder{}, fault.New(fault.Invalid, "the folder is not an image: it has no %s", name).
				WithHint("an image's folder is an OCI layout; pack a root file system with tar").WithCause(err)
		}
		in.Close()
	}
	return f, nil
}

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

// moment is when files of the tests were made.
var moment = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

func file(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content}
}

func dirOf(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func symlink(name, to string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, ""}
}

func hardlink(name, to string) entry {
	return entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}, ""}
}

// entry is one of a tar that is made for a test.
type entry struct {
	tar.Header
	content string
}

// with changes the header of an entry.
func (e entry) with(change func(*tar.Header)) entry {
	change(&e.Header)
	return e
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var all []archivetest.Entry
	for _, e := range entries {
		if e.ModTime.IsZero() && e.Typeflag != tar.TypeXGlobalHeader {
			e.ModTime = moment
		}
		all = append(all, archivetest.Entry{Header: e.Header, Content: strings.NewReader(e.content)})
	}
	return archivetest.Tar(t, all...)
}

func zstded(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// imageWith makes an image of the tars of layers.
func imageWith(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config = v1.Config{Env: []string{"A=1"}, User: "1000:1000", WorkingDir: "/w", Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Labels: map[string]string{"l": "1"}}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// store is a fresh one; change, if not nil, has its say.
func store(t testing.TB, change func(*Config)) *Store {
	t.Helper()
	c := Config{Dir: filepath.Join(t.TempDir(), "images")}
	if change != nil {
		change(&c)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sourceOf makes a source of the tars of layers.
func sourceOf(t testing.TB, layers ...[]byte) *source {
	t.Helper()
	config, err := imageWith(t, layers...).RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	src := &source{config: config}
	for _, data := range layers {
		src.layers = append(src.layers, layer{digest: digestOf(data), size: int64(len(data)), open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data)), nil
		}})
	}
	return src
}

// put adds an image of the tars of layers under a name.
func put(t testing.TB, s *Store, called string, layers ...[]byte) (Image, error) {
	t.Helper()
	ref, err := parse(called)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.adding(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	return s.add(t.Context(), full(ref), sourceOf(t, layers...), newMeter(nil))
}

// mustPut is put of what has to work.
func mustPut(t testing.TB, s *Store, called string, layers ...[]byte) Image {
	t.Helper()
	img, err := put(t, s, called, layers...)
	if err != nil {
		t.Fatal(err, cause(err))
	}
	return img
}

// cause shows what stands behind a fault.
func cause(err error) error {
	if f := fault.Of(err); f != nil && f.Unwrap() != nil {
		return f.Unwrap()
	}
	return err
}

// tree describes the tree below a folder: "path mode [content or -> target]".
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		line := name + " " + info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line = name + " -> " + to
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(data)
		}
		if name != "." {
			all = append(all, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rootTree is the tree of an image.
func rootTree(t testing.TB, s *Store, img Image) []string {
	t.Helper()
	return tree(t, filepath.Join(s.root(img.ID), treeFolder))
}

// checkTree compares a tree with what it should be, line by line.
func checkTree(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the tree is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkClean finds what a failure left in a store: everything but locks.
func checkClean(t testing.TB, s *Store) {
	t.Helper()
	for _, folder := range []string{tempFolder, layersFolder, rootsFolder} {
		left, err := os.ReadDir(s.path(folder))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for _, e := range left {
			t.Errorf("there is %s/%s", folder, e.Name())
		}
	}
	c, err := s.catalog()
	if err != nil {
		t.Fatalf("the names: got error %v, want none", err)
	}
	if len(c.Names) > 0 {
		t.Errorf("the names: c.Names: got %v, want none", c.Names)
	}
}

// countedBody counts what is read of it.
type countedBody struct {
	in *bytes.Reader
	n  int64
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countedBody) Close() error { return nil }

func (c *countedBody) open(context.Context) (io.ReadCloser, error) { return c, nil }

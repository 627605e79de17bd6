package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

// savedBy writes an image as docker save does.
func savedBy(t testing.TB, img v1.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	tag, err := name.NewTag("tools:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.Write(tag, img, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// layoutOf writes an image as an OCI layout.
func layoutOf(t testing.TB, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		if err := p.AppendImage(img); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed makes a tar of a folder.
func packed(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func written(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatCanBeImported(t *testing.T) {
	made := twoLayers(t)
	dir := layoutOf(t, made)
	saved, packedLayout := savedBy(t, made), packed(t, dir)
	root := tarOf(t, dirOf("./"), file("./a", "x"), file("./manifest.txt", "y"))
	rootLines := []string{"a -rw-r--r-- x", "manifest.txt -rw-r--r-- y"}
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"docker save":                             {written(t, saved), twoLayersTree},
		"docker save, with gzip":                  {written(t, archivetest.Gzip(t, saved)), twoLayersTree},
		"docker save, with zstd":                  {written(t, zstded(t, saved)), twoLayersTree},
		"a folder with an OCI layout":             {dir, twoLayersTree},
		"a tar of an OCI layout":                  {written(t, packedLayout), twoLayersTree},
		"a tar of an OCI layout, with gzip":       {written(t, archivetest.Gzip(t, packedLayout)), twoLayersTree},
		"a root file system":                      {written(t, root), rootLines},
		"a root file system, with gzip":           {written(t, archivetest.Gzip(t, root)), rootLines},
		"a root file system, with zstd":           {written(t, zstded(t, root)), rootLines},
		"a root file system with an odd index":    {written(t, tarOf(t, dirOf("index.json"), file("a", "x"))), []string{"a -rw-r--r-- x", "index.json drwxr-xr-x"}},
		"a root file system with a manifest deep": {written(t, tarOf(t, file("d/manifest.json", "x"))), []string{"d drwxr-xr-x", "d/manifest.json -rw-r--r-- x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, hasty)
			var last Progress
			img, err := s.Import(t.Context(), test.file, "tools:1", func(p Progress) { last = p })
			if err != nil {
				t.Fatal(err, cause(err))
			}
			checkTree(t, rootTree(t, s, img), test.want...)
			switch {
			case last.Done != last.Total:
				t.Errorf("the last progress: last.Done = %v, want %v: %+v", last.Done, last.Total, last)
			case last.LayersDone > last.Layers:
				t.Errorf("the last progress: last.LayersDone = %v, want at most %v: %+v",
					last.LayersDone, last.Layers, last)
			case last.Total == 0:
				t.Errorf("the last progress: last.Total = %v, want other than 0: %+v", last.Total, last)
			}
			again, err := s.Import(t.Context(), test.file, "other", nil)
			switch {
			case err != nil:
				t.Errorf("the second time: %v", err)
			case again.ID != img.ID:
				t.Errorf("the second time: again.ID = %v, want %v: %+v", again.ID, img.ID, again)
			case !slices.Equal(again.Names, []string{"other:latest", "tools:1"}):
				t.Errorf("the second time: again.Names = %v, want %v: %+v",
					again.Names, []string{"other:latest", "tools:1"}, again)
			}
			switch all, err := s.List(); {
			case err != nil:
				t.Error(err)
			case len(all) != 1:
				t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
			case !slices.Equal(all[0].Names, again.Names):
				t.Errorf("all[0].Names = %v, want %v: %+v", all[0].Names, again.Names, all)
			}
			if left, _ := os.ReadDir(s.path(tempFolder)); len(left) != 0 {
				t.Errorf("%d things are left", len(left))
			}
		})
	}
}

// edited changes the JSON of a file of a tar.
func edited(t testing.TB, data []byte, file string, change func(any) any) []byte {
	t.Helper()
	var all []entry
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		content := b.String()
		if h.Name == file {
			var v any
			if err := json.Unmarshal([]byte(content), &v); err != nil {
				t.Fatal(err)
			}
			changed, err := json.Marshal(change(v))
			if err != nil {
				t.Fatal(err)
			}
			content, h.Size = string(changed), int64(len(changed))
		}
		all = append(all, entry{*h, content})
	}
	return tarOf(t, all...)
}

func TestWhatCannotBeImported(t *testing.T) {
	made := twoLayers(t)
	saved := savedBy(t, made)
	first := func(change func(map[string]any)) []byte {
		return edited(t, saved, dockerManifest, func(v any) any {
			change(v.([]any)[0].(map[string]any))
			return v
		})
	}
	layoutDir := func(change func(dir string)) string {
		dir := layoutOf(t, made)
		change(dir)
		return dir
	}
	config, _ := made.ConfigName()
	layers, _ := made.Layers()
	blob, _ := layers[0].Digest()
	inLayout := func(dir string, h v1.Hash) string { return filepath.Join(dir, "blobs", h.Algorithm, h.Hex) }
	rewrite := func(path, content string) {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := written(t, []byte("{}"))
	for name, test := range map[string]struct {
		file string
		want fault.Kind
	}{
		"what is not there":                     {"/nothing/here", fault.NotFound},
		"nothing":                               {written(t, nil), fault.Invalid},
		"a text":                                {written(t, []byte(strings.Repeat("text ", 1000))), fault.Invalid},
		"half of it":                            {written(t, saved[:len(saved)/2]), fault.Invalid},
		"half of it, compressed":                {written(t, archivetest.Gzip(t, saved)[:len(saved)/20]), fault.Invalid},
		"xz":                                    {written(t, []byte("\xfd7zXZ\x00rest of it")), fault.Unsupported},
		"a FIFO":                                {fifo(t), fault.Invalid},
		"a folder that is none":                 {t.TempDir(), fault.Invalid},
		"a manifest that is not a list":         {written(t, edited(t, saved, dockerManifest, func(any) any { return "x" })), fault.Invalid},
		"two images":                            {written(t, edited(t, saved, dockerManifest, func(v any) any { return append(v.([]any), v.([]any)...) })), fault.Invalid},
		"no images":                             {written(t, edited(t, saved, dockerManifest, func(any) any { return []any{} })), fault.Invalid},
		"a configuration outside":               {written(t, first(func(m map[string]any) { m["Config"] = "../../" + outside })), fault.Invalid},
		"a layer outside":                       {written(t, first(func(m map[string]any) { m["Layers"] = []string{"../" + outside, outside} })), fault.Invalid},
		"a layer too few":                       {written(t, first(func(m map[string]any) { m["Layers"] = m["Layers"].([]any)[:1] })), fault.Invalid},
		"layers in another order":               {written(t, first(func(m map[string]any) { slices.Reverse(m["Layers"].([]any)) })), fault.Invalid},
		"a layer that is a link to itself":      {written(t, linkLoop(t, first)), fault.Invalid},
		"an image for another machine":          {written(t, edited(t, saved, config.String(), func(v any) any { v.(map[string]any)["architecture"] = "s390x"; return v })), fault.Unsupported},
		"an image for Windows":                  {written(t, edited(t, saved, config.String(), func(v any) any { v.(map[string]any)["os"] = "windows"; return v })), fault.Unsupported},
		"a layout with a changed configuration": {layoutDir(func(dir string) { rewrite(inLayout(dir, config), "{}") }), fault.Invalid},
		"a layout with a layer that is a link out": {layoutDir(func(dir string) { _ = os.Remove(inLayout(dir, blob)); _ = os.Symlink(outside, inLayout(dir, blob)) }), fault.Invalid},
		"a layout with a layer that is a FIFO":     {layoutDir(func(dir string) { _ = os.Remove(inLayout(dir, blob)); _ = syscall.Mkfifo(inLayout(dir, blob), 0o600) }), fault.Invalid},
		"a layout with a layer missing":            {layoutDir(func(dir string) { _ = os.Remove(inLayout(dir, blob)) }), fault.Invalid},
		"a layout with a changed layer": {func() string {
			img := imageWith(t, tarOf(t, file("a", "x")))
			dir, layers := layoutOf(t, img), must(img.Layers())
			rewrite(inLayout(dir, must(layers[0].Digest())), string(tarOf(t, file("evil", "x"))))
			return dir
		}(), fault.Invalid},
		"a layout with two images":                       {layoutOf(t, made, imageWith(t, tarOf(t, file("a", "x")))), fault.Invalid},
		"a layout without images":                        {layoutOf(t), fault.Invalid},
		"a layout whose index names a path":              {layoutDir(func(dir string) { rewriteIndex(t, dir, "sha256:../../../"+filepath.Base(outside)) }), fault.Invalid},
		"a layout whose indexes are each other's":        {layoutDir(func(dir string) { nestIndexes(t, dir) }), fault.Invalid},
		"a layout with an index that is larger than any": {layoutDir(func(dir string) { rewrite(filepath.Join(dir, ociIndex), strings.Repeat(" ", maxConfig+1)) }), fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, hasty)
			if _, err := s.Import(t.Context(), test.file, "tools:1", nil); fault.KindOf(err) != test.want {
				t.Errorf("it is %q: %v: %v", fault.KindOf(err), err, cause(err))
			}
			checkClean(t, s)
		})
	}
}

func fifo(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// linkLoop is an image of docker save's whose layers are links to themselves.
func linkLoop(t testing.TB, first func(func(map[string]any)) []byte) []byte {
	t.Helper()
	data := first(func(m map[string]any) { m["Layers"] = []string{"l", "k"} })
	loop := tarOf(t, symlink("l", "k"), symlink("k", "l"))
	return append(loop[:len(loop)-1024], data...) // without its end mark
}

func rewriteIndex(t testing.TB, dir, digest string) {
	t.Helper()
	text := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":%q}]}`, digest)
	if err := os.WriteFile(filepath.Join(dir, ociIndex), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// nestIndexes puts indexes into indexes, deeper than anybody needs.
func nestIndexes(t testing.TB, dir string) {
	t.Helper()
	text := `{"schemaVersion":2,"manifests":[]}`
	for range maxNested + 1 {
		digest := digestOf([]byte(text))
		if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", hexOf(digest)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		text = fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":%d,"digest":%q}]}`, len(text), digest)
	}
	if err := os.WriteFile(filepath.Join(dir, ociIndex), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAnImportIsCalledByAName(t *testing.T) {
	s := store(t, nil)
	path := written(t, tarOf(t, file("a", "x")))
	for _, called := range []string{Host, "", "a b", "x@sha256:" + strings.Repeat("0", 64), digestPrefix + strings.Repeat("0", 64)} {
		if _, err := s.Import(t.Context(), path, called, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q is %v", called, err)
		}
	}
	if _, err := os.Stat(s.config.Dir); !os.IsNotExist(err) {
		t.Errorf("the store was made: %v", err)
	}
}

func TestAnImportThatIsCancelledLeavesNothing(t *testing.T) {
	s := store(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	data := tarOf(t, file("a", "x"), file("b", strings.Repeat("y", 1<<20)), file("c", "z"))
	if _, err := s.Import(ctx, written(t, data), "x", func(p Progress) {
		if p.Done > 0 {
			cancel()
		}
	}); fault.KindOf(err) != fault.Cancelled {
		t.Errorf("it is %v", err)
	}
	checkClean(t, s)
}

// FuzzImport has any bytes as a file that is imported.
func FuzzImport(f *testing.F) {
	img := imageWith(f, tarOf(f, file("a", "x")))
	for _, data := range [][]byte{savedBy(f, img), packed(f, layoutOf(f, img)), tarOf(f, file("a", "x"), hardlink("b", "a")), archivetest.Gzip(f, tarOf(f, file("a", "x")))} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		s := store(t, small)
		_, err := s.Import(t.Context(), written(t, data), "x", nil)
		if k := fault.KindOf(err); err != nil && k != fault.Invalid && k != fault.Exhausted && k != fault.Unsupported {
			t.Errorf("it is %q: %v: %v", k, err, cause(err))
		}
		around, _ := os.ReadDir(filepath.Dir(s.config.Dir))
		if len(around) > 1 {
			t.Errorf("outside there is %v", around)
		}
		if err != nil && !emptyFolder(s.path(tempFolder)) {
			t.Error("something is left")
		}
	})
}

func emptyFolder(dir string) bool {
	left, err := os.ReadDir(dir)
	return len(left) == 0 && (err == nil || os.IsNotExist(err))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

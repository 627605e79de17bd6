package pkgproxytest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/tests/mcp/suite"
)

// File is an entry of a tarball.
type File struct {
	Name, Text string
	Kind       byte // tar's; zero: a plain file
	Link       string
}

// Tarball packs files as they are called.
func Tarball(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Size: int64(len(f.Text)), Mode: 0o644, Typeflag: f.Kind, Linkname: f.Link}
		if f.Kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.Text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Registry is a registry of npm packages on loopback.
type Registry struct {
	t        testing.TB
	mu       sync.Mutex
	Packages map[string]map[string]json.RawMessage // name, version: manifest
	Files    map[string][]byte                     // by path
	Times    map[string]string                     // name@version
	Tags     map[string]map[string]string
	Asked    []string // paths, with who asked
	Auth     string   // what has to come along
	real     string   // a node_modules folder with more
	Server   *httptest.Server
}

// Old is when packages here were published as a rule.
var Old = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// NewRegistry is an empty one, which ends with the test.
func NewRegistry(t testing.TB) *Registry {
	r := &Registry{t: t, Packages: map[string]map[string]json.RawMessage{}, Files: map[string][]byte{}, Times: map[string]string{}, Tags: map[string]map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Server.Close)
	return r
}

// WithReal adds the packages that npm installed for the tests of MCP.
func (r *Registry) WithReal() *Registry {
	r.real = filepath.Join(suite.Install(r.t).Dir, "node_modules")
	return r
}

// Add publishes a package of files below package/.
func (r *Registry) Add(manifest string, files ...File) {
	r.t.Helper()
	var m struct{ Name, Version string }
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		r.t.Fatalf("%v in %s", err, manifest)
	}
	r.Publish(manifest, m.Name, m.Version, Tarball(r.t, append([]File{{Name: "package/package.json", Text: manifest}}, files...)...))
}

// Publish adds a version with any bytes as its file.
func (r *Registry) Publish(manifest, name, version string, data []byte) {
	sum := sha512.Sum512(data)
	at := "/files/" + strings.ReplaceAll(name, "/", "-") + "-" + version + ".tgz"
	var m map[string]any
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		r.t.Fatal(err)
	}
	if m["dist"] == nil {
		m["dist"] = map[string]any{"tarball": r.Server.URL + at, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	}
	text, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Packages[name] == nil {
		r.Packages[name] = map[string]json.RawMessage{}
		r.Tags[name] = map[string]string{}
	}
	r.Packages[name][version] = text
	r.Tags[name]["latest"] = version
	r.Times[name+"@"+version] = Old.Format(time.RFC3339)
	r.Files[at] = data
}

// find publishes a real package that is asked for.
func (r *Registry) find(name string) {
	r.mu.Lock()
	known := r.Packages[name] != nil
	r.mu.Unlock()
	if known || r.real == "" {
		return
	}
	installed.Lock()
	defer installed.Unlock()
	all, err := installed.named(r.real, name)
	if err != nil {
		r.t.Error(err)
	}
	for _, p := range all {
		r.Publish(p.manifest, p.name, p.version, p.data)
	}
}

// installed is what a folder of npm's holds. It is found and packed once for all registries
// of a process: they serve the same.
var installed = installations{packages: map[string][]packed{}}

type installations struct {
	sync.Mutex
	folders  []string // with packages: the folder itself is the last
	packages map[string][]packed
}

// packed is an installed package as a registry has it.
type packed struct {
	manifest, name, version string
	data                    []byte
}

// named gives a package's versions. The one at the top is the last, and so the latest.
func (i *installations) named(real, name string) ([]packed, error) {
	if all, ok := i.packages[name]; ok {
		return all, nil
	}
	if i.folders == nil {
		for _, at := range []string{"*/node_modules", "@*/*/node_modules", "."} {
			found, err := filepath.Glob(filepath.Join(real, filepath.FromSlash(at)))
			if err != nil {
				return nil, err
			}
			i.folders = append(i.folders, found...)
		}
	}
	var all []packed
	for _, folder := range i.folders {
		dir := filepath.Join(folder, filepath.FromSlash(name))
		manifest, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p, err := pack(dir, manifest)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	i.packages[name] = all
	return all, nil
}

// pack makes a tarball of an installed package. It is stored and not compressed, which takes
// the race detector minutes; what tests write themselves is.
func pack(dir string, manifest []byte) (packed, error) {
	var m struct{ Name, Version string }
	if err := json.Unmarshal(manifest, &m); err != nil {
		return packed{}, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		return packed{}, err
	}
	w := tar.NewWriter(z)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == "node_modules" && e.IsDir() {
			return fs.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: "package/" + p, Size: int64(len(text)), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		return packed{}, err
	}
	return packed{string(manifest), m.Name, m.Version, b.Bytes()}, nil
}

// ServeHTTP answers as a registry does.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.Asked = append(r.Asked, req.URL.Path)
	auth := r.Auth
	r.mu.Unlock()
	if auth != "" && req.Header.Get("Authorization") != auth {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	name := strings.TrimPrefix(req.URL.Path, "/")
	if !strings.HasPrefix(req.URL.Path, "/files/") {
		r.find(name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if data, ok := r.Files[req.URL.Path]; ok {
		_, _ = w.Write(data)
		return
	}
	versions := r.Packages[name]
	if versions == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	times := map[string]string{"modified": Old.Format(time.RFC3339)}
	for version := range versions {
		times[version] = r.Times[name+"@"+version]
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": r.Tags[name], "versions": versions, "time": times})
}

// Count tells how often a path was asked for.
func (r *Registry) Count(path string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.Asked {
		if one == path {
			n++
		}
	}
	return n
}

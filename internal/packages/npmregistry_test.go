package packages_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/packages"
	"paddock/tests/mcp/suite"
)

// file is an entry of a tarball.
type file struct {
	name, text string
	kind       byte // tar's; zero: a plain file
	link       string
}

// tarball packs files as they are called.
func tarball(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o644, Typeflag: f.kind, Linkname: f.link}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
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

// registry is a registry of npm packages on loopback.
type registry struct {
	t        testing.TB
	mu       sync.Mutex
	packages map[string]map[string]json.RawMessage // name, version: manifest
	files    map[string][]byte                     // by path
	times    map[string]string                     // name@version
	tags     map[string]map[string]string
	asked    []string // paths, with who asked
	auth     string   // what has to come along
	real     string   // a node_modules folder with more
	server   *httptest.Server
}

// old is when packages here were published as a rule.
var old = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

func newRegistry(t testing.TB) *registry {
	r := &registry{t: t, packages: map[string]map[string]json.RawMessage{}, files: map[string][]byte{}, times: map[string]string{}, tags: map[string]map[string]string{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

// withReal adds the packages that npm installed for the tests of MCP.
func (r *registry) withReal() *registry {
	r.real = filepath.Join(suite.Install(r.t).Dir, "node_modules")
	return r
}

// add publishes a package of files below package/.
func (r *registry) add(manifest string, files ...file) {
	r.t.Helper()
	var m struct{ Name, Version string }
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		r.t.Fatalf("%v in %s", err, manifest)
	}
	r.publish(manifest, m.Name, m.Version, tarball(r.t, append([]file{{name: "package/package.json", text: manifest}}, files...)...))
}

// publish adds a version with any bytes as its file.
func (r *registry) publish(manifest, name, version string, data []byte) {
	sum := sha512.Sum512(data)
	at := "/files/" + strings.ReplaceAll(name, "/", "-") + "-" + version + ".tgz"
	var m map[string]any
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		r.t.Fatal(err)
	}
	if m["dist"] == nil {
		m["dist"] = map[string]any{"tarball": r.server.URL + at, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	}
	text, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packages[name] == nil {
		r.packages[name] = map[string]json.RawMessage{}
		r.tags[name] = map[string]string{}
	}
	r.packages[name][version] = text
	r.tags[name]["latest"] = version
	r.times[name+"@"+version] = old.Format(time.RFC3339)
	r.files[at] = data
}

// find publishes a real package that is asked for.
func (r *registry) find(name string) {
	r.mu.Lock()
	known := r.packages[name] != nil
	r.mu.Unlock()
	if known || r.real == "" {
		return
	}
	// The one at the top is the last, and so the latest.
	for _, at := range []string{"*/node_modules", "@*/*/node_modules", "."} {
		found, err := filepath.Glob(filepath.Join(r.real, filepath.FromSlash(at), filepath.FromSlash(name), "package.json"))
		if err != nil {
			r.t.Error(err)
		}
		for _, manifest := range found {
			r.pack(filepath.Dir(manifest))
		}
	}
}

// pack publishes an installed package.
func (r *registry) pack(dir string) {
	manifest, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		r.t.Error(err)
		return
	}
	var files []file
	err = fs.WalkDir(os.DirFS(dir), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == "node_modules" && e.IsDir() {
			return fs.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p)))
		files = append(files, file{name: "package/" + p, text: string(text)})
		return err
	})
	var m struct{ Name, Version string }
	if err == nil {
		err = json.Unmarshal(manifest, &m)
	}
	if err != nil {
		r.t.Error(err)
		return
	}
	r.publish(string(manifest), m.Name, m.Version, tarball(r.t, files...))
}

// ServeHTTP answers as a registry does.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, req.URL.Path)
	auth := r.auth
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
	if data, ok := r.files[req.URL.Path]; ok {
		_, _ = w.Write(data)
		return
	}
	versions := r.packages[name]
	if versions == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	times := map[string]string{"modified": old.Format(time.RFC3339)}
	for version := range versions {
		times[version] = r.times[name+"@"+version]
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": r.tags[name], "versions": versions, "time": times})
}

// count tells how often a path was asked for.
func (r *registry) count(path string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.asked {
		if one == path {
			n++
		}
	}
	return n
}

// open makes a front that is closed with the test.
func open(t testing.TB, c packages.Config) *packages.Packages {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.Bundler = packages.BundlerCommand(os.Args[0])
	p, err := packages.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// npmOf is a front of one registry with all of its packages.
func npmOf(t testing.TB, r *registry) *packages.Packages {
	return open(t, packages.Config{NPM: packages.Ecosystem{Indexes: []packages.Index{{URL: r.server.URL}}, Allow: []string{"*"}}})
}

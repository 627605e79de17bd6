// Package pkgproxytest has an index of Python packages and an npm registry on loopback, for
// tests.
package pkgproxytest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// Distribution is a file of an index.
type Distribution struct {
	Name     string // of the file
	Data     []byte
	Sum      string // what the index says; empty: what it is
	Href     string // empty: where the index has it
	Yanked   string
	Uploaded time.Time
	Requires string
	Metadata []byte
}

// Index is an index of Python packages on loopback, of PEP 691, or of PEP 503.
type Index struct {
	HTML     bool
	Mu       sync.Mutex // guards what follows, for who changes it while it serves
	Projects map[string][]Distribution
	Auth     string // what has to come along
	ETag     string
	Status   int    // zero: as it should be
	Redirect string // where pages redirect to
	Asked    []*http.Request
	Server   *httptest.Server
}

// NewIndex is an empty one, which ends with the test.
func NewIndex(t testing.TB) *Index {
	x := &Index{Projects: map[string][]Distribution{}}
	x.Server = httptest.NewServer(x)
	t.Cleanup(x.Server.Close)
	return x
}

// Add has it list more files of a project.
func (x *Index) Add(project string, all ...Distribution) *Index {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	x.Projects[project] = append(x.Projects[project], all...)
	return x
}

// ServeHTTP answers as an index does: /simple/NAME/ and /files/FILE.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	x.Asked = append(x.Asked, r)
	name, isPage := strings.CutPrefix(r.URL.Path, "/simple/")
	name = strings.TrimSuffix(name, "/")
	switch {
	case x.Auth != "" && r.Header.Get("Authorization") != x.Auth:
		w.WriteHeader(http.StatusUnauthorized)
	case isPage && x.Status != 0:
		w.WriteHeader(x.Status)
	case isPage && x.Redirect != "":
		http.Redirect(w, r, x.Redirect+r.URL.Path, http.StatusFound)
	case isPage && x.ETag != "" && r.Header.Get("If-None-Match") == x.ETag:
		w.WriteHeader(http.StatusNotModified)
	case isPage && x.Projects[name] == nil:
		w.WriteHeader(http.StatusNotFound)
	case isPage:
		w.Header().Set("ETag", x.ETag)
		x.page(w, name)
	default:
		x.file(w, r)
	}
}

func (x *Index) file(w http.ResponseWriter, r *http.Request) {
	wanted := filepath.Base(r.URL.Path)
	for _, all := range x.Projects {
		for _, d := range all {
			switch wanted {
			case d.Name:
				_, _ = w.Write(d.Data)
				return
			case d.Name + ".metadata":
				_, _ = w.Write(d.Metadata)
				return
			}
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

// SumOf is the SHA-256 that an index names.
func SumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (x *Index) page(w http.ResponseWriter, name string) {
	if x.HTML {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><html><body>")
	}
	var files []map[string]any
	for _, d := range x.Projects[name] {
		sum, href := d.Sum, d.Href
		if sum == "" {
			sum = SumOf(d.Data)
		}
		if href == "" {
			href = "../../files/" + d.Name
		}
		f := map[string]any{"filename": d.Name, "url": href, "hashes": map[string]string{"sha256": sum}, "requires-python": d.Requires, "yanked": false}
		attrs := ""
		if d.Yanked != "" {
			f["yanked"], attrs = d.Yanked, ` data-yanked="`+html.EscapeString(d.Yanked)+`"`
		}
		if d.Requires != "" {
			attrs += ` data-requires-python="` + html.EscapeString(d.Requires) + `"`
		}
		if !d.Uploaded.IsZero() {
			f["upload-time"] = d.Uploaded.Format(time.RFC3339Nano)
		}
		if d.Metadata != nil {
			f["core-metadata"] = map[string]string{"sha256": SumOf(d.Metadata)}
			attrs += ` data-core-metadata="sha256=` + SumOf(d.Metadata) + `"`
		}
		files = append(files, f)
		if x.HTML {
			fmt.Fprintf(w, `<a href="%s#sha256=%s"%s>%s</a><br>`, html.EscapeString(href), sum, attrs, d.Name)
		}
	}
	if !x.HTML {
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": name, "files": files})
	}
}

// Wheel makes one of files, with what belongs to it.
func Wheel(t testing.TB, name, version, tag string, requires []string, files map[string]string) Distribution {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	for _, r := range requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	all := map[string]string{info + "METADATA": meta, info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: " + tag + "\n"}
	for name, text := range files {
		all[name] = text
	}
	record := ""
	for name, text := range all {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
		record += name + ",,\n"
	}
	f, err := w.Create(info + "RECORD")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, record+info+"RECORD,,\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return Distribution{Name: name + "-" + version + "-" + tag + ".whl", Data: b.Bytes(), Uploaded: Old, Metadata: []byte(meta)}
}

// Simple is a wheel with one module.
func Simple(t testing.TB, name, version string) Distribution {
	return Wheel(t, name, version, "py3-none-any", nil, map[string]string{name + ".py": "version = '" + version + "'\n"})
}

// Real are packages that make got from Debian for the skills: openpyxl, what it
// depends on, and pypdf, as wheels.
func Real(t testing.TB) map[string]Distribution {
	t.Helper()
	wheels.Lock()
	defer wheels.Unlock()
	if wheels.all == nil {
		wheels.all = packReal(t)
	}
	return maps.Clone(wheels.all)
}

// wheels are those of [Real], which a process packs once.
var wheels struct {
	sync.Mutex
	all map[string]Distribution
}

func packReal(t testing.TB) map[string]Distribution {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(root(t), "skills", "build", "sources.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := map[string]Distribution{}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.Contains(fields[1], ".orig.") {
			continue
		}
		source := filepath.Join(sandboxtest.BuildCache(t), "sources", fields[0])
		_, err := os.Stat(source)
		sandboxtest.Require(t, "wasm", err == nil, "the sources of Python packages are not there (make skills)")
		for name, w := range map[string]struct {
			version  string
			requires []string
		}{"et_xmlfile": {"2.0.0", nil}, "openpyxl": {"3.1.5", []string{"et-xmlfile"}}, "pypdf": {"5.4.0", []string{`typing_extensions>=4.0; python_version < "3.11"`}}} {
			if strings.Contains(fields[1], strings.ReplaceAll(name, "_", "-")) || strings.Contains(fields[1], strings.TrimPrefix(name, "et_")) && name == "et_xmlfile" {
				to := filepath.Join(dir, name)
				if err := os.Mkdir(to, 0o700); err != nil {
					t.Fatal(err)
				}
				if text, err := exec.CommandContext(t.Context(), "tar", "-xf", source, "-C", to, "--strip-components=1").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				out[name] = Wheel(t, name, w.version, "py3-none-any", w.requires, modules(t, to, name))
			}
		}
	}
	if len(out) != 3 {
		t.Fatalf("found %d of 3 packages", len(out))
	}
	return out
}

// root is the folder of the checkout.
func root(t testing.TB) string {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatalf("there is no go.mod above: %v", err)
	return ""
}

// modules reads a package's files.
func modules(t testing.TB, dir, name string) map[string]string {
	all := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, name, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, p)
		all[p] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

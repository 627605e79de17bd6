package packages_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/packages"
	"paddock/internal/sandbox/sandboxtest"
)

// distribution is a file of an index.
type distribution struct {
	name     string // of the file
	data     []byte
	sum      string // what the index says; empty: what it is
	href     string // empty: where the index has it
	yanked   string
	uploaded time.Time
	requires string
	metadata []byte
}

// index is an index of Python packages on loopback, of PEP 691, or of PEP 503.
type index struct {
	html     bool
	mu       sync.Mutex
	projects map[string][]distribution
	auth     string // what has to come along
	etag     string
	status   int    // zero: as it should be
	redirect string // where pages redirect to
	asked    []*http.Request
	server   *httptest.Server
}

func newIndex(t testing.TB) *index {
	x := &index{projects: map[string][]distribution{}}
	x.server = httptest.NewServer(x)
	t.Cleanup(x.server.Close)
	return x
}

func (x *index) add(project string, all ...distribution) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.projects[project] = append(x.projects[project], all...)
	return x
}

// ServeHTTP answers as an index does: /simple/NAME/ and /files/FILE.
func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, r)
	name, isPage := strings.CutPrefix(r.URL.Path, "/simple/")
	name = strings.TrimSuffix(name, "/")
	switch {
	case x.auth != "" && r.Header.Get("Authorization") != x.auth:
		w.WriteHeader(http.StatusUnauthorized)
	case isPage && x.status != 0:
		w.WriteHeader(x.status)
	case isPage && x.redirect != "":
		http.Redirect(w, r, x.redirect+r.URL.Path, http.StatusFound)
	case isPage && x.etag != "" && r.Header.Get("If-None-Match") == x.etag:
		w.WriteHeader(http.StatusNotModified)
	case isPage && x.projects[name] == nil:
		w.WriteHeader(http.StatusNotFound)
	case isPage:
		w.Header().Set("ETag", x.etag)
		x.page(w, name)
	default:
		x.file(w, r)
	}
}

func (x *index) file(w http.ResponseWriter, r *http.Request) {
	wanted := filepath.Base(r.URL.Path)
	for _, all := range x.projects {
		for _, d := range all {
			switch wanted {
			case d.name:
				_, _ = w.Write(d.data)
				return
			case d.name + ".metadata":
				_, _ = w.Write(d.metadata)
				return
			}
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (x *index) page(w http.ResponseWriter, name string) {
	if x.html {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><html><body>")
	}
	var files []map[string]any
	for _, d := range x.projects[name] {
		sum, href := d.sum, d.href
		if sum == "" {
			sum = sumOf(d.data)
		}
		if href == "" {
			href = "../../files/" + d.name
		}
		f := map[string]any{"filename": d.name, "url": href, "hashes": map[string]string{"sha256": sum}, "requires-python": d.requires, "yanked": false}
		attrs := ""
		if d.yanked != "" {
			f["yanked"], attrs = d.yanked, ` data-yanked="`+html.EscapeString(d.yanked)+`"`
		}
		if d.requires != "" {
			attrs += ` data-requires-python="` + html.EscapeString(d.requires) + `"`
		}
		if !d.uploaded.IsZero() {
			f["upload-time"] = d.uploaded.Format(time.RFC3339Nano)
		}
		if d.metadata != nil {
			f["core-metadata"] = map[string]string{"sha256": sumOf(d.metadata)}
			attrs += ` data-core-metadata="sha256=` + sumOf(d.metadata) + `"`
		}
		files = append(files, f)
		if x.html {
			fmt.Fprintf(w, `<a href="%s#sha256=%s"%s>%s</a><br>`, html.EscapeString(href), sum, attrs, d.name)
		}
	}
	if !x.html {
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": name, "files": files})
	}
}

// wheel makes one of files, with what belongs to it.
func wheel(t testing.TB, name, version, tag string, requires []string, files map[string]string) distribution {
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
	return distribution{name: name + "-" + version + "-" + tag + ".whl", data: b.Bytes(), uploaded: old, metadata: []byte(meta)}
}

// simple is a wheel with one module.
func simple(t testing.TB, name, version string) distribution {
	return wheel(t, name, version, "py3-none-any", nil, map[string]string{name + ".py": "version = '" + version + "'\n"})
}

// real are packages that make got from Debian for the skills: openpyxl, what it
// depends on, and pypdf, as wheels.
func real(t testing.TB) map[string]distribution {
	t.Helper()
	list, err := os.ReadFile(filepath.Join("..", "..", "skills", "build", "sources.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := map[string]distribution{}
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
				out[name] = wheel(t, name, w.version, "py3-none-any", w.requires, modules(t, to, name))
			}
		}
	}
	if len(out) != 3 {
		t.Fatalf("found %d of 3 packages", len(out))
	}
	return out
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

// pythonOf is a front of indexes, with all of their packages.
func pythonOf(t testing.TB, all ...*index) (*packages.Packages, *httptest.Server) {
	return pythonWith(t, packages.Ecosystem{Allow: []string{"*"}}, packages.Config{}, all...)
}

func pythonWith(t testing.TB, e packages.Ecosystem, c packages.Config, all ...*index) (*packages.Packages, *httptest.Server) {
	for _, x := range all {
		e.Indexes = append(e.Indexes, packages.Index{URL: x.server.URL + "/simple"})
	}
	c.Python = e
	p := open(t, c)
	s := httptest.NewServer(p.Handler())
	t.Cleanup(s.Close)
	return p, s
}

// answer is what the front answers.
type answer struct {
	status int
	body   string
	header http.Header
	err    error // of the body
}

func get(t testing.TB, url string, accept ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range accept {
		req.Header.Set("Accept", kind)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), resp.Header, err}
}

// python is the Python that make built for this machine, of the guest's version, and
// the wheel of pip that comes with it.
func python(t testing.TB) (program, pip string) {
	t.Helper()
	at, err := os.ReadFile(filepath.Join(sandboxtest.BuildCache(t), "out", "python", "native.path"))
	sandboxtest.Require(t, "wasm", err == nil, "the guest's Python was not built here (make guests)")
	dir := strings.TrimSpace(string(at))
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python3.13", "ensurepip", "_bundled", "pip-*.whl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("pip's wheel: %q, %v", found, err)
	}
	return filepath.Join(dir, "bin", "python3.13"), found[0]
}

var pipOnce sync.Once

// pipDir is a folder with pip, compiled.
var pipDir string

func compiledPip(t testing.TB) string {
	t.Helper()
	program, pip := python(t)
	pipOnce.Do(func() {
		var err error
		if pipDir, err = os.MkdirTemp("", "paddock-test-pip-"); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"-m", "zipfile", "-e", pip, pipDir}, {"-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash", pipDir}} {
			if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	})
	return pipDir
}

func TestMain(m *testing.M) {
	if packages.Requested(os.Args) {
		os.Exit(packages.Main())
	}
	code := m.Run()
	if pipDir != "" {
		_ = os.RemoveAll(pipDir)
	}
	os.Exit(code)
}

// runPip runs it on this machine, against a front.
func runPip(ctx context.Context, t testing.TB, front, target string, args ...string) (string, error) {
	t.Helper()
	program, _ := python(t)
	cmd := exec.CommandContext(ctx, program, append([]string{"-P", "-m", "pip", "install", "--target", target, "--no-cache-dir", "--no-compile", "--only-binary", ":all:"}, args...)...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "PIP_CONFIG_FILE=" + os.DevNull, "PYTHONPATH=" + compiledPip(t)}
	for name, value := range packages.Environment(front) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

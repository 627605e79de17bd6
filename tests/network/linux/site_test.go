//go:build linux && (amd64 || arm64)

package linux

import (
	"archive/zip"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/pkgproxy/pkgproxytest"
)

// newSite serves a text, an echo, a package index, an npm registry and a Git repository.
func newSite(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/text", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " for ", r.Host) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		_, _ = w.Write(all)
	})
	wheel := wheel(t)
	mux.HandleFunc("/simple/hello/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		sum := sha256.Sum256(wheel)
		fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"/files/%s#sha256=%x\">%[1]s</a></body></html>", wheelName, sum)
	})
	mux.HandleFunc("/files/"+wheelName, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
	tarball := pkgproxytest.Tarball(t,
		pkgproxytest.File{Name: "package/package.json", Text: `{"name":"hello","version":"1.2.3","main":"index.js"}`},
		pkgproxytest.File{Name: "package/index.js", Text: "module.exports = 'from a tarball';\n"})
	mux.HandleFunc("/npm/hello", func(w http.ResponseWriter, r *http.Request) {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		s1, s512 := sha1.Sum(tarball), sha512.Sum512(tarball)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "hello", "dist-tags": map[string]string{"latest": "1.2.3"}, "versions": map[string]any{"1.2.3": map[string]any{
				"name": "hello", "version": "1.2.3", "main": "index.js", "dist": map[string]string{
					"tarball": scheme + r.Host + "/npm/hello.tgz", "shasum": hex.EncodeToString(s1[:]), "integrity": "sha512-" + base64.StdEncoding.EncodeToString(s512[:]),
				},
			}},
		})
	})
	mux.HandleFunc("/npm/hello.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tarball) })
	if h := repository(t); h != nil {
		mux.Handle("/git/", h)
	}
	return mux
}

const wheelName = "hello-1.2.3-py3-none-any.whl"

func wheel(t *testing.T) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"hello.py":                       "print_me = 'from a wheel'\n",
		"hello-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.2.3\n",
		"hello-1.2.3.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"hello-1.2.3.dist-info/RECORD":   "hello.py,,\nhello-1.2.3.dist-info/METADATA,,\nhello-1.2.3.dist-info/WHEEL,,\nhello-1.2.3.dist-info/RECORD,,\n",
	} {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repository serves one at /git/hello.git by Git's own server; nil: Git is not here.
func repository(t *testing.T) http.Handler {
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		return nil
	}
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "work"},
		{"-C", "work", "-c", "user.name=ann", "-c", "user.email=ann@example.com", "commit", "-q", "--allow-empty", "-m", "from a repository"},
		{"clone", "-q", "--bare", "work", "hello.git"},
		{"-C", "hello.git", "config", "http.receivepack", "true"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/git", Dir: dir,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard,
	}
}

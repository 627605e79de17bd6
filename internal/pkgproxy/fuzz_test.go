package pkgproxy

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"
)

// Whatever a page says, what is taken from it are files of that package, of http or
// https, with a digest.
func FuzzPages(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	f.Add(`<a href="foo_bar-1.0-py3-none-any.whl#sha256=`+sum+`" data-yanked data-requires-python="&gt;3">x</a>`, false)
	f.Add(`<base href="file:///"><a href="../foo-bar-1.tar.gz#sha256=`+sum+`">`, false)
	f.Add(`{"files":[{"filename":"foo_bar-1.0-py3-none-any.whl","url":"x","hashes":{"sha256":"`+sum+`"},"yanked":true,"core-metadata":{"sha256":"`+sum+`"}}]}`, true)
	base, err := url.Parse("https://index.example/simple/foo-bar/")
	if err != nil {
		f.Fatal(err)
	}
	s := storeOf(f)
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		err := s.keepPage("k", semver.PyPI, time.Now(), func(out *pageWriter) (pageHead, error) {
			p := &project{name: "foo-bar", out: out, base: base}
			if isJSON {
				return pageHead{}, p.readJSON(strings.NewReader(text))
			}
			return pageHead{}, p.readHTML(strings.NewReader(text))
		})
		if err != nil {
			return
		}
		page := s.openPage("k")
		defer page.close()
		for r, err := range page.all() {
			file, fileErr := page.listed(r)
			if err != nil {
				t.Fatalf("a row that cannot be read: got error %v, want none", err)
			}
			if fileErr != nil {
				t.Fatalf("a row that cannot be read: fileErr: got error %v, want none", fileErr)
			}
			switch {
			case projectNameOf(file.name) != "foo-bar" &&
				!strings.HasSuffix(file.name, ".tar.gz") && !strings.HasSuffix(file.name, ".zip"):
				t.Errorf("a file %q, want one of foo-bar, a .tar.gz or a .zip", file.name)
			case path.Base(file.name) != file.name:
				t.Errorf("a file: path.Base(file.name) = %v, want %v", path.Base(file.name), file.name)
			case strings.ContainsAny(file.name, "\"<>\\/\n"):
				t.Errorf("a file: file.name = %q, want none of %q in it", file.name, "\"<>\\/\n")
			}
			switch {
			case file.url.Scheme != "http" && file.url.Scheme != "https":
				t.Errorf(`a file at: file.url.Scheme = %q, want "http" or "https": %s, %v`,
					file.url.Scheme, file.url, file.digest)
			case file.url.User != nil:
				t.Errorf("a file at: file.url.User = %v, want nil: %s, %v", file.url.User, file.url, file.digest)
			case file.digest.algorithm == "sha1":
				t.Errorf(`a file at: file.digest.algorithm = %q, want other than "sha1"`, file.digest.algorithm)
			case len(file.digest.value) < 64:
				t.Errorf("a file at: len(file.digest.value) = %d, want at least 64: %+v",
					len(file.digest.value), file.digest.value)
			}
			if strings.HasSuffix(file.name, ".whl") {
				if w, err := pypi.ParseWheelName(file.name); err != nil {
					t.Errorf("a wheel %q: got error %v, want none", file.name, err)
				} else if pypi.CanonPackageName(w.Name) != "foo-bar" {
					t.Errorf("a wheel %q: pypi.CanonPackageName(w.Name): got %q, want %q",
						file.name, pypi.CanonPackageName(w.Name), "foo-bar")
				}
			}
		}
	})
}

func storeOf(t testing.TB) *store {
	s, err := openStore(t.TempDir(), 1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Whatever a registry says of a package, what is kept of it can be read, is of that
// package, has a digest and a URL, and is JSON when it is given out.
func FuzzPackuments(f *testing.F) {
	sum := "sha512-" + strings.Repeat("A", 86) + "=="
	f.Add(`{"name":"p","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"p","version":"1.0.0","dist":{"tarball":"p.tgz","integrity":"` + sum + `"}}},"time":{"1.0.0":"2020-01-02T03:04:05Z"}}`)
	f.Add(`{"name":"p","versions":{"1.0.0":{"__proto__":{},"name":"p","version":"1.0.0","version":"2.0.0","scripts":{"install":"x"},"deprecated":true,"dist":{"tarball":"file:///x","shasum":"` + strings.Repeat("a", 40) + `"}}},"_x":[[[{"a":[]}]]]}`)
	base, err := url.Parse("https://registry.example/npm/")
	if err != nil {
		f.Fatal(err)
	}
	s := storeOf(f)
	f.Fuzz(func(t *testing.T, text string) {
		err := s.keepPage("k", semver.NPM, time.Now(), func(out *pageWriter) (pageHead, error) {
			return readPackument(strings.NewReader(text), "p", base, out)
		})
		if err != nil {
			return
		}
		page := s.openPage("k")
		defer page.close()
		found := &packument{page: page, p: &Packages{now: time.Now}, name: "p"}
		for r, err := range found.rows() {
			if err != nil {
				t.Fatal(err)
			}
			one, err := page.release(r)
			if err != nil {
				continue // fields of other kinds than they should be
			}
			switch {
			case one.Name != "p":
				t.Errorf(`a release: one.Name = %q, want "p"`, one.Name)
			case one.Version != r.Version:
				t.Errorf("a release: one.Version = %v, want %v: %+v", one.Version, r.Version, one)
			case one.digest == (digest{}):
				t.Errorf("a release: one.digest = %v, want other than %v: %+v", one.digest, digest{}, one)
			case one.url.Scheme != "http" && one.url.Scheme != "https":
				t.Errorf(`a release: one.url.Scheme = %q, want "http" or "https": %+v`, one.url.Scheme, one)
			case one.url.User != nil:
				t.Errorf("a release: one.url.User = %v, want nil: %+v", one.url.User, one)
			}
			for _, part := range []int{partShort, partLong} {
				var b bytes.Buffer
				if err := found.show(&b, r, part, "http://front"); err != nil {
					t.Error(err)
				} else if !json.Valid(b.Bytes()) {
					t.Errorf("got %s, want JSON", b.Bytes())
				}
			}
		}
	})
}

// Whatever an entry is called, it lies in the package's folder or nowhere.
func FuzzEntries(f *testing.F) {
	for _, name := range []string{"package/a.js", "package/../x", "/etc/passwd", "a\\b", "package/node_modules/x/y", "x", "package//a", "./package/a"} {
		f.Add(name)
	}
	n := &node{name: "p", release: &release{}}
	f.Fuzz(func(t *testing.T, name string) {
		inner, err := innerName(n, name, 0o644)
		if err == nil && inner != "" && !fs.ValidPath(inner) && strings.ToValidUTF8(inner, "") == inner {
			t.Errorf("%q is %q", name, inner)
		}
		if strings.HasPrefix(inner, "node_modules/") {
			t.Errorf("%q is another package's", name)
		}
	})
}

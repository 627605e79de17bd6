package packages

import (
	"io/fs"
	"net/url"
	"path"
	"strings"
	"testing"

	"deps.dev/util/pypi"
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
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		p := &project{name: "foo-bar"}
		if isJSON {
			err = p.readJSON([]byte(text), base)
		} else {
			err = p.readHTML([]byte(text), base)
		}
		for _, file := range p.files {
			if projectNameOf(file.name) != "foo-bar" && !strings.HasSuffix(file.name, ".tar.gz") && !strings.HasSuffix(file.name, ".zip") || path.Base(file.name) != file.name || strings.ContainsAny(file.name, "\"<>\\/\n") {
				t.Errorf("a file %q", file.name)
			}
			if file.url.Scheme != "http" && file.url.Scheme != "https" || file.url.User != nil || file.digest.algorithm == "sha1" || len(file.digest.value) < 64 {
				t.Errorf("a file at %s with %v", file.url, file.digest)
			}
			if strings.HasSuffix(file.name, ".whl") {
				if w, err := pypi.ParseWheelName(file.name); err != nil || pypi.CanonPackageName(w.Name) != "foo-bar" {
					t.Errorf("a wheel %q", file.name)
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

package pkgproxy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/pkgproxy/pkgproxytest"
)

// source is a source archive of these files, by their names, in the order given.
func source(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	out := tar.NewWriter(packed)
	for _, f := range files {
		h := &tar.Header{Name: f[0], Mode: 0o600, Size: int64(len(f[1])), Typeflag: tar.TypeReg}
		if to, is := strings.CutPrefix(f[1], "-> "); is {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, to, 0
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := out.Write([]byte(f[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const metadataOfYAML = "Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0.3\n"

// Of a package that does without its compiled part pip installs the Python, where no
// compiled wheel fits.
func TestPythonOfASourceArchiveIsAWheel(t *testing.T) {
	x := newIndex(t)
	x.Add("pyyaml",
		pkgproxytest.Wheel(t, "PyYAML", "6.0.3", "cp27-cp27m-win32", nil, map[string]string{"yaml/__init__.py": "compiled = True"}),
		pkgproxytest.Distribution{Name: "pyyaml-6.0.3.tar.gz", Data: source(t,
			[2]string{"pyyaml-6.0.3/PKG-INFO", metadataOfYAML},
			[2]string{"pyyaml-6.0.3/setup.py", "raise SystemExit('setup.py is run')"},
			[2]string{"pyyaml-6.0.3/lib/yaml/__init__.py", "compiled = False"},
			[2]string{"pyyaml-6.0.3/lib/yaml/../../../../evil.py", "x = 1"},
			[2]string{"pyyaml-6.0.3/lib/yaml/leak.py", "-> /etc/passwd"},
			[2]string{"pyyaml-6.0.3/lib/other/__init__.py", "x = 1"},
			[2]string{"pyyaml-6.0.3/tests/yaml/test_it.py", "x = 1"},
		)})
	_, front := pythonOf(t, x)
	target := t.TempDir()
	if out, err := runPip(t.Context(), t, front.URL, target, "pyyaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(target, "yaml", "__init__.py")); err != nil {
		t.Errorf("got error %v, want none: %s", err, text)
	} else if string(text) != "compiled = False" {
		t.Errorf("text: got %q, want %q", string(text), "compiled = False")
	}
	var names []string
	_ = filepath.WalkDir(target, func(at string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(at) == ".py" {
			names = append(names, strings.TrimPrefix(at, target))
		}
		return err
	})
	if got := strings.Join(names, " "); got != "/yaml/__init__.py" {
		t.Errorf("it installs %s", got)
	}
}

// An archive that is not what its index says, or no archive, is not a wheel.
func TestSourceArchivesThatAreNoWheel(t *testing.T) {
	good := source(t, [2]string{"pyyaml-6.0.3/PKG-INFO", metadataOfYAML}, [2]string{"pyyaml-6.0.3/lib/yaml/__init__.py", ""})
	for about, d := range map[string]pkgproxytest.Distribution{
		"another digest":  {Data: good, Sum: pkgproxytest.SumOf([]byte("what was promised"))},
		"no archive":      {Data: []byte("not gzip")},
		"cut short":       {Data: good[:len(good)/2]},
		"no metadata":     {Data: source(t, [2]string{"pyyaml-6.0.3/lib/yaml/__init__.py", ""})},
		"no modules":      {Data: source(t, [2]string{"pyyaml-6.0.3/PKG-INFO", metadataOfYAML})},
		"larger than all": {Data: source(t, [2]string{"pyyaml-6.0.3/PKG-INFO", metadataOfYAML}, [2]string{"pyyaml-6.0.3/lib/yaml/a.py", strings.Repeat("#", 9<<20)})},
	} {
		t.Run(about, func(t *testing.T) {
			x := newIndex(t)
			d.Name = "pyyaml-6.0.3.tar.gz"
			x.Add("pyyaml", d)
			_, front := pythonOf(t, x)
			if a := get(t, front.URL+"/pypi/files/pyyaml/pyyaml-6.0.3-py3-none-any.whl", ""); a.status == http.StatusOK {
				t.Errorf("it is given out: %d bytes", len(a.body))
			}
		})
	}
}

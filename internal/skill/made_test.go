package skill

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/egress"
)

// main makes a SKILL.md.
func mainOf(name string, more ...string) string {
	return "---\nname: " + name + "\ndescription: Counts words. Use it when words are to be counted.\n" + strings.Join(more, "") + "---\n\n# Words\n\nCall `count`.\n\n" +
		"```python\nimport re\n```\n\nthen\n\n```py title=\"x\"\ndef count(text):\n    return len(re.findall(r'\\w+', text))\n```\n\n```js\nfunction count(text) { return text.split(/\\s+/).length }\n```\n"
}

// example is a skill with everything that the format has.
func example(name string) []File {
	return []File{
		{Path: MainFile, Data: []byte(mainOf(name, "license: MIT\n"))},
		{Path: "scripts/run.sh", Executable: true, Data: []byte("#!/bin/sh\necho hello\n")},
		{Path: "references/REFERENCE.md", Data: []byte("# More\n")},
		{Path: "assets/logo.bin", Data: []byte{0, 1, 2, 0xff}},
	}
}

func folderOf(t testing.TB, files ...File) Folder {
	t.Helper()
	f, err := newFolder(files)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// entry is one of an archive.
type entry struct {
	name string
	mode fs.FileMode
	kind byte // of tar; 0: a file
	data string
}

func entriesOf(top string, files []File) (all []entry) {
	for _, f := range files {
		mode := fs.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		all = append(all, entry{top + f.Path, mode, 0, string(f.Data)})
	}
	return all
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func tarGz(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	write := func(h *tar.Header, data string) {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	write(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": commit}}, "")
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Typeflag: tar.TypeReg, Size: int64(len(e.data))}
		if e.kind != 0 {
			h.Typeflag, h.Size, h.Linkname = e.kind, 0, e.data
			e.data = ""
		}
		write(h, e.data)
	}
	for _, c := range []io.Closer{w, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// site is a server of files, which keeps the requests.
type site struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte
	asked []*http.Request
	serve http.HandlerFunc // first, where there is one: true is answered by writing
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		data, ok := s.files[r.URL.Path]
		serve := s.serve
		s.mu.Unlock()
		switch {
		case serve != nil:
			serve(w, r)
		case ok:
			_, _ = w.Write(data)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
}

// reach is a transport that reaches loopback.
func reach(t *testing.T) http.RoundTripper {
	t.Helper()
	p, err := egress.Parse([]string{"127.0.0.1:*!private"}, egress.Rights{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	transport := egress.NewTransport(p, egress.Options{})
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// storeOf makes a store that fetches from a site.
func storeOf(t *testing.T, s *site) *Store {
	t.Helper()
	c := Config{Dir: t.TempDir()}
	if s != nil {
		c.Transport, c.GitHub.API = reach(t), s.URL
	}
	return NewStore(c)
}

func source(t *testing.T, text string, local bool) Source {
	t.Helper()
	s, err := ParseSource(text, local)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func paths(f Folder) string {
	var all []string
	for _, file := range f {
		name := file.Path
		if file.Executable {
			name += "*"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

const examplePaths = "SKILL.md assets/logo.bin references/REFERENCE.md scripts/run.sh*"

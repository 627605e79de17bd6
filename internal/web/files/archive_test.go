package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

// tarOf packs headers; a regular file's content is its name unless Size says
// otherwise.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var entries []archivetest.Entry
	for _, h := range headers {
		e := archivetest.Entry{Header: h}
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		if e.Typeflag == tar.TypeReg && e.Size == 0 {
			e.Size, e.Content = int64(len(e.Name)), strings.NewReader(e.Name)
		} else if e.Typeflag != tar.TypeReg {
			e.Content = strings.NewReader("")
		}
		entries = append(entries, e)
	}
	return archivetest.Tar(t, entries...)
}

// zipOf packs files whose content is their name; mode holds what they are.
func zipOf(t *testing.T, mode fs.FileMode, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode | 0o644)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, name); err != nil && !strings.HasSuffix(name, "/") {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s *server) unpack(archive []byte) answered {
	s.Helper()
	return s.do("PUT", "/v1/sessions/s/archive", bytes.NewReader(archive))
}

// paths lists the files of the session.
func (s *server) paths() string {
	s.Helper()
	files, done, err := s.sessions.Files("alice", "s")
	if err != nil {
		s.Fatal(err)
	}
	defer done()
	all, _, err := files.List(s.Context(), "")
	if err != nil {
		s.Fatal(err)
	}
	var paths []string
	for _, f := range all {
		paths = append(paths, f.Path)
	}
	return strings.Join(paths, " ")
}

func TestAnArchiveGoesDownAndUpAgain(t *testing.T) {
	for _, ask := range [][]string{{"?format=zip"}, {"?format=tar.gz"}, {""}, {"", "Accept", "application/zip"}} {
		t.Run(fmt.Sprint(ask), func(t *testing.T) {
			s := serve(t, nil)
			for _, name := range []string{"a.txt", "sub/b.txt", "sub/größe.bin"} {
				s.want(s.put(name, name), 201, "")
			}
			got := s.want(s.do("GET", "/v1/sessions/s/archive"+ask[0], nil, ask[1:]...), 200, "")
			if d := got.head.Get("Content-Disposition"); !strings.HasPrefix(d, `attachment; filename="s.`) {
				t.Errorf("the disposition is %q", d)
			}
			if _, err := s.sessions.Reset(t.Context(), "alice", "s"); err != nil {
				t.Fatal(err)
			}
			s.put("kept", "x")
			if up := s.want(s.unpack([]byte(got.body)), 200, ""); !strings.Contains(up.body, `"files":3`) {
				t.Errorf("unpacked: %s", up.body)
			}
			if p := s.paths(); p != "a.txt kept sub/b.txt sub/größe.bin" {
				t.Errorf("the files are %s", p)
			}
			if got := s.do("GET", "/v1/sessions/s/files/sub/gr%C3%B6%C3%9Fe.bin", nil); got.body != "sub/größe.bin" {
				t.Errorf("a file has %q", got.body)
			}
		})
	}
}

func TestAPartOfTheFilesInAnArchive(t *testing.T) {
	s := serve(t, nil)
	s.put("a.txt", "x")
	s.put("b.bin", "x")
	got := s.want(s.do("GET", "/v1/sessions/s/archive?format=zip&glob=*.txt", nil), 200, "")
	in, err := zip.NewReader(strings.NewReader(got.body), int64(len(got.body)))
	switch {
	case err != nil:
		t.Errorf("the archive: %v", err)
	case len(in.File) != 1:
		t.Errorf("the archive: len(in.File) = %d, want 1: %+v", len(in.File), in.File)
	case in.File[0].Name != "a.txt":
		t.Errorf(`the archive: in.File[0].Name = %q, want "a.txt"`, in.File[0].Name)
	}
	s.want(s.do("GET", "/v1/sessions/s/archive?format=rar", nil), 400, fault.Invalid)
	s.want(s.do("GET", "/v1/sessions/s/archive?glob=%5B", nil), 400, fault.Invalid)
	if got := s.want(s.do("HEAD", "/v1/sessions/s/archive", nil), 200, ""); got.head.Get("Content-Type") != "application/gzip" {
		t.Errorf("got %v", got.head)
	}
}

func TestArchivesThatAreRefusedLeaveNothing(t *testing.T) {
	good := tar.Header{Name: "good", Mode: 0o644}
	entry := func(h tar.Header) []byte { return tarOf(t, good, h) }
	many := make([]tar.Header, maxEntries+1)
	for k := range many {
		many[k] = tar.Header{Name: fmt.Sprintf("d%d/", k), Typeflag: tar.TypeDir}
	}
	for name, c := range map[string]struct {
		archive []byte
		status  int
		kind    fault.Kind
	}{
		"a path out":               {entry(tar.Header{Name: "../evil"}), 403, fault.Denied},
		"a path out, later":        {entry(tar.Header{Name: "a/../../evil"}), 403, fault.Denied},
		"an absolute path":         {entry(tar.Header{Name: "/etc/evil"}), 403, fault.Denied},
		"the guest's own root":     {entry(tar.Header{Name: "/workspace/evil"}), 403, fault.Denied},
		"a backslash":              {entry(tar.Header{Name: `..\evil`}), 400, fault.Invalid},
		"a drive":                  {entry(tar.Header{Name: "C:evil"}), 403, fault.Denied},
		"a device's name":          {entry(tar.Header{Name: "aux.txt"}), 400, fault.Invalid},
		"a folder out":             {entry(tar.Header{Name: "../evil/", Typeflag: tar.TypeDir}), 403, fault.Denied},
		"a symbolic link":          {entry(tar.Header{Name: "l", Linkname: "good", Typeflag: tar.TypeSymlink}), 403, fault.Denied},
		"a link and a file in it":  {tarOf(t, tar.Header{Name: "l", Linkname: "/", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/evil"}), 403, fault.Denied},
		"a hard link":              {entry(tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}), 403, fault.Denied},
		"a device":                 {entry(tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), 403, fault.Denied},
		"a FIFO":                   {entry(tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}), 403, fault.Denied},
		"a file twice":             {entry(tar.Header{Name: "./good"}), 400, fault.Invalid},
		"a file below a file":      {entry(tar.Header{Name: "good/below"}), 400, fault.Invalid},
		"a file for a folder":      {entry(tar.Header{Name: "there"}), 400, fault.Invalid},
		"too many entries":         {tarOf(t, many...), 413, fault.Exhausted},
		"a bomb":                   {archivetest.Gzip(t, entry(tar.Header{Name: "zeros", Size: 10 << 20})), 413, fault.Exhausted},
		"zeros after the end":      {archivetest.Gzip(t, append(entry(tar.Header{Name: "b"}), make([]byte, 10<<20)...)), 413, fault.Exhausted},
		"more than the disk":       {tarOf(t, good, tar.Header{Name: "zeros", Size: disk}), 507, fault.Exhausted},
		"a tar cut off":            {entry(tar.Header{Name: "b", Size: 5000})[:4000], 400, fault.Invalid},
		"a tar.gz cut off":         {archivetest.Gzip(t, entry(tar.Header{Name: "b"}))[:80], 400, fault.Invalid},
		"a tar.gz without its sum": {archivetest.Gzip(t, entry(tar.Header{Name: "b"}))[:len(archivetest.Gzip(t, entry(tar.Header{Name: "b"})))-8], 400, fault.Invalid},
		"no archive":               {[]byte("hello"), 400, fault.Invalid},
		"nothing":                  {nil, 400, fault.Invalid},
		"a zip with a path out":    {zipOf(t, 0, "good", "../evil"), 403, fault.Denied},
		"a zip with a backslash":   {zipOf(t, 0, "good", `..\evil`), 400, fault.Invalid},
		"a zip with a link":        {zipOf(t, fs.ModeSymlink, "l"), 403, fault.Denied},
		"a zip with a device":      {zipOf(t, fs.ModeDevice, "l"), 403, fault.Denied},
		"a zip with a file twice":  {zipOf(t, 0, "good", "good"), 400, fault.Invalid},
		"a zip cut off":            {zipOf(t, 0, "good", "b")[:60], 400, fault.Invalid},
		"a zip bomb":               {zipBomb(t, 10<<20), 413, fault.Exhausted},
		"a zip of overlaps":        {overlaps(t, 1000, 64<<10), 413, fault.Exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, nil)
			s.put("there/file", "x")
			s.want(s.unpack(c.archive), c.status, c.kind)
			if p := s.paths(); p != "there/file" {
				t.Errorf("the files are %s", p)
			}
			s.want(s.unpack(tarOf(t, good)), 200, "") // and nothing is in the way of the next
		})
	}
}

func zipBomb(t *testing.T, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("zeros")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, archivetest.Zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// overlaps makes a zip whose n entries all are the same compressed bytes.
func overlaps(t *testing.T, n int, each int64) []byte {
	t.Helper()
	one := zipBomb(t, each)
	table := bytes.Index(one, []byte("PK\x01\x02"))
	end := bytes.Index(one, []byte("PK\x05\x06"))
	entry := one[table:end]
	out := bytes.Clone(one[:table])
	for k := range n {
		e := bytes.Clone(entry)
		copy(e[46:], fmt.Sprintf("%05d", k)) // "zeros" is as long
		out = append(out, e...)
	}
	tail := bytes.Clone(one[end:])
	binary.LittleEndian.PutUint16(tail[8:], uint16(n))
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	binary.LittleEndian.PutUint32(tail[12:], uint32(n*len(entry)))
	return append(out, tail...)
}

func TestAZipWithAHugeTableIsNotReadIntoMemory(t *testing.T) {
	s := serve(t, nil)
	archive := overlaps(t, 170_000, 10) // more than maxTable of entries
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.want(s.unpack(archive), 413, fault.Exhausted)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 96<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func TestRightsThatAnArchiveMayGive(t *testing.T) {
	s := serve(t, nil)
	s.want(s.unpack(tarOf(t, tar.Header{Name: "program", Mode: 0o6777}, tar.Header{Name: "text", Mode: 0o666})), 200, "")
	got := s.do("GET", "/v1/sessions/s/archive?format=zip", nil)
	in, err := zip.NewReader(strings.NewReader(got.body), int64(len(got.body)))
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("there are no such rights here")
	}
	for _, f := range in.File {
		if want := map[string]fs.FileMode{"program": 0o755, "text": 0o644}[f.Name]; f.Mode() != want {
			t.Errorf("%s has %v, want %v", f.Name, f.Mode(), want)
		}
	}
}

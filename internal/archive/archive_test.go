package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"paddock/internal/archive"
	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

var limits = archive.Limits{Entries: 100, Ratio: 50, Free: 64 << 10, Zip: 1 << 20, Table: 64 << 10}

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// contents reads an archive into "name mode content" lines.
func contents(data []byte, limits archive.Limits) (lines []string, comment string, err error) {
	err = archive.Read(bytes.NewReader(data), limits, archive.Receiver{
		Entry: func(name string, mode fs.FileMode, content io.Reader) error {
			text, err := io.ReadAll(content)
			lines = append(lines, fmt.Sprintf("%s %v %.20s", name, mode, text))
			return err
		},
		Spool: func(src io.Reader) (archive.File, int64, error) {
			data, err := io.ReadAll(src)
			return memory{bytes.NewReader(data)}, int64(len(data)), err
		},
		Comment: func(text string) { comment = text },
	})
	return lines, comment, err
}

func tarOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var entries []archivetest.Entry
	for _, h := range headers {
		entries = append(entries, archivetest.Entry{Header: *h})
	}
	return archivetest.Tar(t, entries...)
}

func zipOf(t testing.TB, size int64, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(f, archivetest.Zeros{}, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEveryKindOfArchiveIsRead(t *testing.T) {
	comment := &tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "0123abcd"}}
	all := tarOf(t, comment, &tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755}, &tar.Header{Name: "../b", Mode: 0o755},
		&tar.Header{Name: "l", Linkname: "x", Typeflag: tar.TypeLink}, &tar.Header{Name: "s", Linkname: "x", Typeflag: tar.TypeSymlink}, &tar.Header{Name: "d", Typeflag: tar.TypeChar})
	for name, data := range map[string][]byte{"tar": all, "tar.gz": archivetest.Gzip(t, all)} {
		lines, said, err := contents(data, limits)
		if want := "[a/ drwxr-xr-x  ../b -rwxr-xr-x  l ?---------  s L"; err != nil || !strings.HasPrefix(fmt.Sprint(lines), want) || len(lines) != 5 || said != "0123abcd" {
			t.Errorf("%s: %q, %q, %v", name, lines, said, err)
		}
	}
	if lines, _, err := contents(zipOf(t, 3, "x", "y/z"), limits); err != nil || len(lines) != 2 {
		t.Errorf("zip: %q, %v", lines, err)
	}
}

// What is behind the last part of a tar.gz, padding or anything else that is not part, is
// left out, as gzip and npm do.
func TestPaddedArchivesAreWhole(t *testing.T) {
	tarball := tarOf(t, &tar.Header{Name: "a", Size: 3}, &tar.Header{Name: "b", Size: 3})
	packed := archivetest.Gzip(t, tarball)
	for name, data := range map[string][]byte{
		"zeros": append(bytes.Clone(packed), make([]byte, 10_240)...), "one zero": append(bytes.Clone(packed), 0), "text": append(bytes.Clone(packed), "rest"...),
		"parts": append(archivetest.Gzip(t, tarball[:700]), archivetest.Gzip(t, tarball[700:])...), "a padded tar": archivetest.Gzip(t, append(bytes.Clone(tarball), make([]byte, 1<<20)...)),
	} {
		if lines, _, err := contents(data, archive.Limits{Entries: 10, Ratio: 1000, Free: 8 << 20}); err != nil || len(lines) != 2 {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
	broken := bytes.Clone(packed)
	broken[len(broken)-6]++
	if _, _, err := contents(broken, limits); err == nil {
		t.Error("another checksum is not seen")
	}
}

func TestBombsEnd(t *testing.T) {
	var many []*tar.Header
	for range limits.Entries + 1 {
		many = append(many, &tar.Header{Name: "d/", Typeflag: tar.TypeDir})
	}
	names := make([]string, 1000)
	for k := range names {
		names[k] = strings.Repeat("n", 100)
	}
	large := limits
	large.Zip = 1 << 30
	for name, c := range map[string]struct {
		data   []byte
		limits archive.Limits
	}{
		"a tar.gz of zeros":          {archivetest.Gzip(t, tarOf(t, &tar.Header{Name: "z", Size: 2 << 20})), limits},
		"zeros after the end":        {archivetest.Gzip(t, append(tarOf(t, &tar.Header{Name: "z"}), make([]byte, 2<<20)...)), limits},
		"a zip of zeros":             {zipOf(t, 2<<20, "z"), limits},
		"too many entries":           {tarOf(t, many...), limits},
		"a large zip":                {append(zipOf(t, 1, "a"), make([]byte, 2<<20)...), limits},
		"a large table":              {zipOf(t, 0, names...), large},
		"anything, without a limit":  {tarOf(t, &tar.Header{Name: "a"}), archive.Limits{}},
		"a zip, without a limit":     {zipOf(t, 0, "a"), archive.Limits{}},
		"zeros, without being asked": {archivetest.Gzip(t, tarOf(t, &tar.Header{Name: "a", Size: 1 << 20})), archive.Limits{Entries: 1}},
	} {
		_, _, err := contents(c.data, c.limits)
		var much archive.Excess
		if !errors.As(err, &much) || fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

// holes is a tar with a file of which nothing is there but its size.
func holes(size int64) []byte {
	block := make([]byte, 512)
	copy(block, "holes")
	copy(block[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(block[257:], "ustar  \x00")
	copy(block[386:], fmt.Sprintf("%011o\x0000000000000\x00", size)) // a part of no bytes at the end
	copy(block[483:], fmt.Sprintf("%011o\x00", size))
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(block, make([]byte, 1024)...)
}

func TestAFileOfHolesEnds(t *testing.T) {
	if lines, _, err := contents(holes(10), limits); err != nil || len(lines) != 1 {
		t.Fatalf("a small one: %q, %v", lines, err)
	}
	if _, _, err := contents(holes(1<<32), limits); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("got %v", err)
	}
}

// What is skipped counts as what is read does.
func TestABombThatNobodyReadsEnds(t *testing.T) {
	data := archivetest.Gzip(t, tarOf(t, &tar.Header{Name: "z", Size: 2 << 20}))
	err := archive.Read(bytes.NewReader(data), limits, archive.Receiver{Entry: func(string, fs.FileMode, io.Reader) error { return nil }})
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("got %v", err)
	}
}

func TestDamagedArchivesAreErrors(t *testing.T) {
	whole := archivetest.Gzip(t, tarOf(t, &tar.Header{Name: "a", Size: 5000}))
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "zeros": make([]byte, 2048), "cut": whole[:40], "without its sum": whole[:len(whole)-8],
		"a tar that is cut": tarOf(t, &tar.Header{Name: "a", Size: 5000})[:4000], "a zip that is cut": zipOf(t, 9, "a")[:30],
	} {
		if _, _, err := contents(data, limits); err == nil {
			t.Errorf("%s is an archive", name)
		}
	}
	refusal := errors.New("no")
	err := archive.Read(bytes.NewReader(whole), limits, archive.Receiver{Entry: func(string, fs.FileMode, io.Reader) error { return refusal }})
	if !errors.Is(err, refusal) {
		t.Errorf("the receiver's error is %v", err)
	}
	if err := archive.Read(bytes.NewReader(zipOf(t, 1, "a")), limits, archive.Receiver{}); err == nil {
		t.Error("a zip is read without a place for it")
	}
}

// Whatever the bytes are, what comes out is bounded.
func FuzzRead(f *testing.F) {
	f.Add(tarOf(f, &tar.Header{Name: "a", Size: 10}))
	f.Add(archivetest.Gzip(f, tarOf(f, &tar.Header{Name: "a", Size: 1000})))
	f.Add(zipOf(f, 100, "a", "b"))
	f.Add(holes(100))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, sum := 0, int64(0)
		_ = archive.Read(bytes.NewReader(data), limits, archive.Receiver{
			Entry: func(_ string, _ fs.FileMode, content io.Reader) error {
				n, err := io.Copy(io.Discard, content)
				entries, sum = entries+1, sum+n
				return err
			},
			Spool: func(src io.Reader) (archive.File, int64, error) {
				data, err := io.ReadAll(src)
				return memory{bytes.NewReader(data)}, int64(len(data)), err
			},
		})
		if most := max(limits.Free, limits.Ratio*int64(len(data)+4096)) + 64<<10; entries > limits.Entries || sum > most {
			t.Errorf("%d bytes give %d entries and %d bytes", len(data), entries, sum)
		}
	})
}

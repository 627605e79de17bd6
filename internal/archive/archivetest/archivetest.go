// Package archivetest makes archives for tests.
package archivetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// Entry is an entry of a tar.
type Entry struct {
	tar.Header
	// Content is the file's; nil: Size zeros.
	Content io.Reader
}

// Tar packs entries as they are, also such as no program would pack.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if e.Content == nil {
			e.Content = io.LimitReader(Zeros{}, e.Size)
		}
		if _, err := io.Copy(w, e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Gzip compresses data.
func Gzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Zeros are as many zeros as somebody reads.
type Zeros struct{}

// Read implements [io.Reader].
func (Zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

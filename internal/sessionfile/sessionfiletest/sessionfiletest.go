// Package sessionfiletest takes session archives apart for tests, and puts them together
// as nobody should.
package sessionfiletest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Entry is one of an archive's.
type Entry struct {
	Name string
	Data []byte
}

// Entries gives what is in an archive, in its order.
func Entries(t testing.TB, archive []byte) (all []Entry) {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		data, readErr := io.ReadAll(in)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		all = append(all, Entry{h.Name, data})
	}
}

// Archive gives an archive of these entries, with what after gives behind their end;
// nil: nothing.
func Archive(t testing.TB, all []Entry, after io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, e := range all {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: e.Name, Mode: 0o600, Size: int64(len(e.Data))}))
		_, writeErr := w.Write(e.Data)
		err = errors.Join(err, writeErr)
	}
	err = errors.Join(err, w.Close())
	if after != nil {
		_, writeErr := io.Copy(z, after)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

package session_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// withoutBlobs gives an archive that names its contents and does not hold them.
func withoutBlobs(t *testing.T, archive []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var out bytes.Buffer
	pack, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	from, to := tar.NewReader(z), tar.NewWriter(pack)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(h.Name, "blobs/"):
			continue
		case h.Name == "paddock-end.json":
			data, err = json.Marshal(map[string]int{"blobs": 0})
		}
		h.Size = int64(len(data))
		if err = errors.Join(err, to.WriteHeader(h)); err == nil {
			_, err = to.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.Close(), pack.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

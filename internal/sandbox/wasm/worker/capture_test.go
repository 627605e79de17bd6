package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/linear"
)

// captured captures the image of a guest with an engine, and gives its file
// and its digest.
func captured(t *testing.T, l *loader, name string) (content []byte, digest string) {
	t.Helper()
	p, err := l.compile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := l.capture(p, path); err != nil {
		t.Fatal(err)
	}
	img, err := linear.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return content, img.Digest
}

// sameImages checks that images are one, and tells where they are not.
func sameImages(t *testing.T, one, two []byte, oneDigest, twoDigest string) {
	t.Helper()
	if oneDigest != twoDigest {
		t.Errorf("the digests are %s and %s", oneDigest, twoDigest)
	}
	if bytes.Equal(one, two) {
		return
	}
	differ, first := 0, -1
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			differ++
			if first < 0 {
				first = i
			}
		}
	}
	t.Errorf("%d of %d and %d bytes differ, the first of them at %#x", differ, len(one), len(two), first)
}

// What is saved of an interpreter are its differences to the image.
func TestAnImageIsTheSameWheneverItIsCaptured(t *testing.T) {
	for _, name := range guest.Available() {
		t.Run(name, func(t *testing.T) {
			l := loaderIn(t, preparedCache(t))
			one, oneDigest := captured(t, l, name)
			two, twoDigest := captured(t, l, name)
			sameImages(t, one, two, oneDigest, twoDigest)
		})
	}
}

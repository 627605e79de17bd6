package pkgproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func sha(text string) digest {
	d := digest{algorithm: "sha256"}
	h := d.hash()
	_, _ = io.WriteString(h, text)
	d.value = fmt.Sprintf("%x", h.Sum(nil))
	return d
}

func contents(text string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(text))), nil
	}
}

// What was not used for the longest time goes first, and what was left half-written
// after an hour.
func TestTheCacheKeepsWithinItsBound(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir, 300, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	now := time.Now()
	for k := range 5 {
		text := fmt.Sprintf("%0100d", k)
		f, err := s.get(t.Context(), sha(text), "x", contents(text))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		s.pending.Wait()
		at := now.Add(time.Duration(k-10) * time.Minute)
		_ = os.Chtimes(filepath.Join(dir, filepath.FromSlash(place(sha(text), ""))), at, at)
	}
	if err := os.WriteFile(filepath.Join(dir, newFolder, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.sweep(now.Add(2 * time.Hour))
	for k := range 5 {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(place(sha(fmt.Sprintf("%0100d", k)), ""))))
		if (err == nil) != (k >= 2) {
			t.Errorf("%d: %v", k, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, newFolder, "left")); err == nil {
		t.Error("what was left half-written is there")
	}
}

// Many who want a file fetch it once, and who gives up does not keep the others from it.
func TestAFileIsFetchedOnce(t *testing.T) {
	s, err := openStore(t.TempDir(), 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	fetched := 0
	begin := make(chan struct{})
	fetch := func(ctx context.Context) (io.ReadCloser, error) {
		fetched++
		<-begin
		return contents("all")(ctx)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			f, err := s.get(t.Context(), sha("all"), "x", fetch)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.get(gone, sha("other"), "x", func(ctx context.Context) (io.ReadCloser, error) { return nil, ctx.Err() }); err == nil {
		t.Error("who gave up has it")
	}
	close(begin)
	all.Wait()
	if fetched != 1 {
		t.Errorf("it was fetched %d times", fetched)
	}
}

// A SHA-1 is not a name for a file wherever it comes from.
func TestAWeakDigestCountsWithWhereItIsFrom(t *testing.T) {
	weak, ok := newDigest("sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709")
	if !ok {
		t.Error("ok: got false, want true")
	}
	if place(weak, "a") == place(weak, "b") {
		t.Errorf(`place(weak, "a"): got %v, want another`, place(weak, "a"))
	}
	strong := sha("")
	if place(strong, "a") != place(strong, "b") {
		t.Error("one file has two places")
	}
	if _, ok := newDigest("md5", "d41d8cd98f00b204e9800998ecf8427e"); ok {
		t.Error("MD5 is believed")
	}
}

package pkgproxy

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// forge writes into a file of the cache so that its size and time stay.
func forge(t *testing.T, path string, at int64, text string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text), at)
	if err := errors.Join(err, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// However little shows of a change on the disk, what is read to its end is what was
// verified, and the next one who asks has it again.
func TestWhatIsChangedOnTheDiskIsNeverReadToItsEnd(t *testing.T) {
	const size = 100_000
	text := strings.Repeat("0123456789", size/10)
	for _, test := range []struct {
		name   string
		change func(t *testing.T, path string)
		late   bool // it is made when the file is open, else before
		from   int64
	}{
		{"while it is open", func(t *testing.T, path string) { forge(t, path, size-1, "x") }, true, 0},
		{"in a part that is not asked for", func(t *testing.T, path string) { forge(t, path, 0, "x") }, true, size - 10},
		{"without a trace", func(t *testing.T, path string) { forge(t, path, 5000, "x") }, false, 0},
		{"without a trace, and a part is asked for", func(t *testing.T, path string) { forge(t, path, size-1, "x") }, false, 10},
		{"shorter, while it is open", func(t *testing.T, path string) { must(t, os.Truncate(path, size-1)) }, true, 0},
		{"empty, while it is open", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := openStore(dir, 1<<20, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			path := filepath.Join(dir, filepath.FromSlash(place(sha(text), "")))
			first, err := s.get(t.Context(), sha(text), "x", contents(text))
			if err != nil {
				t.Fatal(err)
			}
			first.Close()
			if !test.late {
				test.change(t, path)
			}
			f, err := s.get(t.Context(), sha(text), "x", contents(text))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if test.late {
				test.change(t, path)
			}
			if at, err := f.Seek(test.from, io.SeekStart); err != nil {
				t.Fatal(err)
			} else if at != test.from {
				t.Fatalf("f.Seek(test.from, io.SeekStart): got %v, want %v", at, test.from)
			}
			got, err := io.ReadAll(f)
			if err == nil {
				t.Error("got no error, want one")
			}
			if test.from+int64(len(got)) >= size {
				t.Errorf("test.from+int64(len(got)): got %v, want less than %v", test.from+int64(len(got)), size)
			}
			fetched := false
			again, err := s.get(t.Context(), sha(text), "x", func(ctx context.Context) (io.ReadCloser, error) { fetched = true; return contents(text)(ctx) })
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			switch got, err := io.ReadAll(again); {
			case err != nil:
				t.Errorf("after that: %v", err)
			case string(got) != text:
				t.Errorf("after that: got = %q, want %q", string(got), text)
			case !fetched:
				t.Errorf("after that: fetched = false, want true: %d", len(got))
			}
		})
	}
}

// A file is read for its digest when a process has not done so, or it looks changed; what
// is added to it after it was opened is not its own.
func TestAFileIsVerifiedOnceByAProcess(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("a", 1000)
	path := filepath.Join(dir, filepath.FromSlash(place(sha(text), "")))
	s, err := openStore(dir, 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	known := func(s *store) bool {
		info, err := os.Stat(path)
		return err == nil && s.knows(place(sha(text), ""), info)
	}
	open := func(s *store) *stored {
		t.Helper()
		f, err := s.get(t.Context(), sha(text), "x", contents(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if f := open(s); f.whole {
		t.Error("what was put in: f.whole: got true, want false")
	} else if !known(s) {
		t.Error("what was put in is read again")
	}
	long := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(path, long, long))
	if f := open(s); !f.whole {
		t.Error("what looks changed: f.whole: got false, want true")
	} else if !known(s) {
		t.Error("what looks changed is not read again")
	}
	if info, err := os.Stat(path); err != nil {
		t.Error(err)
	} else if time.Since(info.ModTime()) > usedEvery {
		t.Errorf("time.Since(info.ModTime()): got %v, want at most %v", time.Since(info.ModTime()), usedEvery)
	}
	if f := open(s); f.whole {
		t.Error("what was verified is read again")
	}
	other, err := openStore(dir, 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if f := open(other); !f.whole {
		t.Error("another process does not read it")
	}
	f := open(s)
	add, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = io.WriteString(add, "more")
	}
	must(t, errors.Join(err, add.Close()))
	if got, err := io.ReadAll(f); err != nil {
		t.Errorf("of one that grew: got error %v, want none", err)
	} else if string(got) != text {
		t.Errorf("of one that grew: got %q, want %q", string(got), text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

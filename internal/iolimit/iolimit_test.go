package iolimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"paddock/internal/iolimit"
)

var errOver = errors.New("there is too much")

func TestMoreThanMayBeIsAnErrorAndNotTheEnd(t *testing.T) {
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"in one piece":          func(r io.Reader) io.Reader { return r },
		"byte by byte":          iotest.OneByteReader,
		"the end with the data": iotest.DataErrReader,
	} {
		for _, c := range []struct {
			most int64
			want string
			err  error
		}{
			{-1, "", errOver},
			{0, "", errOver},
			{3, "abc", errOver},
			{4, "abcd", nil},
			{5, "abcd", nil},
			{math.MaxInt64, "abcd", nil},
		} {
			r := &iolimit.Reader{R: wrap(strings.NewReader("abcd")), Left: c.most, Over: errOver}
			got, err := io.ReadAll(r)
			if !errors.Is(err, c.err) {
				t.Errorf("%s, %d bytes: the error is %v, want %v", name, c.most, err, c.err)
			}
			if string(got) != c.want {
				t.Errorf("%s, %d bytes: it gave %q, want %q", name, c.most, got, c.want)
			}
			if _, err := r.Read(make([]byte, 1)); c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s, %d bytes: reading on gave %v, want %v", name, c.most, err, c.err)
			}
			all, err := iolimit.ReadAll(wrap(strings.NewReader("abcd")), c.most, errOver)
			if !errors.Is(err, c.err) {
				t.Errorf("%s, all of %d bytes: the error is %v, want %v", name, c.most, err, c.err)
			}
			if want := map[bool]string{true: "abcd"}[c.err == nil]; string(all) != want {
				t.Errorf("%s, all of %d bytes: it gave %q, want %q", name, c.most, all, want)
			}
		}
	}
}

func TestABrokenReaderIsNotTooMuch(t *testing.T) {
	broken := errors.New("broken")
	_, err := iolimit.ReadAll(io.MultiReader(strings.NewReader("abcd"), iotest.ErrReader(broken)), 4, errOver)
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
}

func TestAWatchedReaderCountsAndEnds(t *testing.T) {
	sum := 0
	r := iolimit.Watch(iotest.OneByteReader(strings.NewReader("abcd")), func(n int) error {
		if sum += n; sum == 3 {
			return errOver
		}
		return nil
	})
	got, err := io.ReadAll(r)
	if string(got) != "abc" {
		t.Errorf("it gave %q, want %q", got, "abc")
	}
	if !errors.Is(err, errOver) {
		t.Errorf("the error is %v, want %v", err, errOver)
	}
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r := iolimit.WithContext(ctx, strings.NewReader("abcd"))
	if n, err := r.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Errorf("before, it read %d bytes and %v, want 2 and no error", n, err)
	}
	cancel(errOver)
	if n, err := r.Read(make([]byte, 2)); n != 0 || !errors.Is(err, errOver) {
		t.Errorf("after, it read %d bytes and %v, want 0 and %v", n, err, errOver)
	}
}

func TestAWriterTakesWhatFits(t *testing.T) {
	var to bytes.Buffer
	w := &iolimit.Writer{W: &to, Left: 3, Over: errOver}
	if n, err := w.Write([]byte("ab")); n != 2 || err != nil {
		t.Errorf("it wrote %d bytes and said %v, want 2 and no error", n, err)
	}
	if n, err := w.Write([]byte("cd")); n != 0 || !errors.Is(err, errOver) {
		t.Errorf("beyond, it wrote %d bytes and said %v, want 0 and %v", n, err, errOver)
	}
	if n, err := w.Write([]byte("c")); n != 1 || err != nil {
		t.Errorf("to its end, it wrote %d bytes and said %v, want 1 and no error", n, err)
	}
	if to.String() != "abc" || w.N != 3 {
		t.Errorf("%q was written, %d bytes, want %q", &to, w.N, "abc")
	}
}

func TestAReaderAtReadsSoMuchInAll(t *testing.T) {
	r := &iolimit.ReaderAt{R: strings.NewReader("abcd"), Left: 3, Over: errOver}
	p := make([]byte, 2)
	if n, err := r.ReadAt(p, 2); n != 2 || string(p) != "cd" || err != nil {
		t.Errorf("it read %q, %d bytes and %v, want %q", p, n, err, "cd")
	}
	if n, err := r.ReadAt(p, 0); n != 0 || !errors.Is(err, errOver) {
		t.Errorf("beyond, it read %d bytes and %v, want 0 and %v", n, err, errOver)
	}
}

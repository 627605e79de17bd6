package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPipeKeepsWhatFitsAndHasWritersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe(4)
		if n, err := a.Write([]byte("four")); err != nil {
			t.Fatalf("got error %v, want none", err)
		} else if n != 4 {
			t.Fatalf("n = %d, want 4", n)
		}
		written := make(chan int, 1)
		go func() {
			n, _ := a.Write([]byte("more bytes"))
			written <- n
		}()
		synctest.Wait()
		select {
		case n := <-written:
			t.Fatalf("%d bytes were written where there was no room", n)
		default:
		}
		p := make([]byte, 14)
		if _, err := io.ReadFull(b, p); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if string(p) != "fourmore bytes" {
			t.Errorf(`p = %q, want "fourmore bytes"`, string(p))
		}
		if n := <-written; n != 10 {
			t.Errorf("%d bytes were written", n)
		}
	})
}

func TestWhatWasWrittenIsReadAfterTheEnd(t *testing.T) {
	a, b := newPipe(16)
	_, _ = a.Write([]byte("the last"))
	a.Close()
	if all, err := io.ReadAll(b); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if string(all) != "the last" {
		t.Errorf(`all = %q, want "the last"`, string(all))
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write to who has gone: %v", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a read of what was closed: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe(4)
		defer a.Close()
		defer b.Close()
		check := func(what string, err error) {
			t.Helper()
			var timeout net.Error
			switch {
			case !errors.Is(err, os.ErrDeadlineExceeded):
				t.Errorf("%s: error %v, want %v", what, err, os.ErrDeadlineExceeded)
			case !errors.As(err, &timeout):
				t.Errorf("%s: error %v, want a %T", what, err, timeout)
			case !timeout.Timeout():
				t.Errorf("%s: timeout.Timeout() = false, want true: %v", what, err)
			}
		}
		_ = a.SetDeadline(time.Now().Add(time.Second))
		_, err := a.Read(make([]byte, 1))
		check("a read", err)
		n, err := a.Write(bytes.Repeat([]byte("x"), 5))
		check("a write", err)
		_ = a.SetReadDeadline(time.Unix(1, 0)) // as net/http does to have a read return
		_, err = a.Read(make([]byte, 1))
		check("a deadline of the past", err)
		_ = a.SetDeadline(time.Time{})
		if _, err := b.Write([]byte("y")); err != nil {
			t.Error(err)
		}
		if n, err := a.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the deadline was taken back: got error %v, want none", err)
		} else if n != 1 {
			t.Errorf("after the deadline was taken back: n = %d, want 1", n)
		}
		if n > 4 {
			t.Errorf("%d bytes were written where there is room for four", n)
		}
	})
}

func TestADeadlineEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe(4)
		defer b.Close()
		_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		ended := make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		_ = a.SetReadDeadline(time.Unix(1, 0))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestAReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newPipe(4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.take(ctx, 1); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

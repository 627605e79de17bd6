package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Frames that several goroutines write are whole, also those whose parts are not copied.
func TestLargeFramesAreWhole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, open := range map[string]func() (a, b net.Conn){
		"a pipe": func() (a, b net.Conn) { return net.Pipe() },
		"a socket": func() (a, b net.Conn) {
			a, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if b, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			return a, b
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := open()
			defer theirs.Close()
			writing, reading := NewConn(ours), NewConn(theirs)
			const writers, each = 4, 50
			var work sync.WaitGroup
			for id := range uint32(writers) {
				work.Go(func() {
					for k := range each {
						fill := []byte{byte(id), byte(k)}
						small, large := bytes.Repeat(fill, k), bytes.Repeat(fill, largePart/2+k)
						if err := writing.Write(KindData, id, small, large, small, nil, large[:largePart-1]); err != nil {
							t.Errorf("writing a frame: %v", err)
						}
						if err := writing.Write(KindStdout, id, small); err != nil {
							t.Errorf("writing a frame: %v", err)
						}
					}
				})
			}
			go func() {
				work.Wait()
				writing.Close()
			}()
			var seen [writers]int
			for {
				f, err := reading.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("after %v frames: %v", seen, err)
				}
				k := seen[f.ID] / 2
				want := 2 * k
				if f.Kind == KindData {
					want = 2*(k+largePart/2+k+k) + largePart - 1
				}
				if seen[f.ID]++; len(f.Body) != want {
					t.Fatalf("a frame has %d bytes, want %d", len(f.Body), want)
				}
				for at, c := range f.Body[:max(len(f.Body)-largePart, 0)] {
					if c != []byte{byte(f.ID), byte(k)}[at%2] {
						t.Fatalf("a frame has bytes of another one")
					}
				}
			}
			if seen != [writers]int{2 * each, 2 * each, 2 * each, 2 * each} {
				t.Errorf("so many frames came of each: %v", seen)
			}
		})
	}
}

func TestALargeFrameThatDoesNotGetThroughIsAnError(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, headerSize+100)) // a part of it
		theirs.Close()
	}()
	if err := NewConn(ours).Write(KindData, 1, make([]byte, 2*largePart)); err == nil {
		t.Error("there is no error")
	}
	if err := NewConn(ours).Write(KindData, 1, make([]byte, maxBody+1)); !errors.Is(err, errTooLong) {
		t.Errorf("one that is too long: %v, want %v", err, errTooLong)
	}
}

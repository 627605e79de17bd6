//go:build unix

package transport

import (
	"io"
	"os"
	"testing"
	"time"
)

func TestUnheardIsAPipeWithoutAReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if peerClosed(w) {
		t.Error("a pipe that nobody reads yet counts as unheard")
	}
	for err == nil { // until it is full
		w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = w.Write(make([]byte, 4096))
	}
	if peerClosed(w) {
		t.Error("a full pipe counts as unheard")
	}
	r.Close()
	if !peerClosed(w) {
		t.Error("a pipe whose reader is gone is not known as such")
	}
	w.Close()
	if peerClosed(w) {
		t.Error("a pipe's peer has closed: got true, want false, as it is not known")
	}
	if peerClosed(io.Discard) {
		t.Error("the peer of no file has closed: got true, want false")
	}
	file, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if peerClosed(file) {
		t.Error("a file counts as unheard")
	}
}
